"""A trained chatbot at work: answers, their examination, the export."""
