"""The zoo: Keras models and their losses."""
