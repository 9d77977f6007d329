"""A trained chatbot as a service: the API, batches of waiting questions, the page."""
