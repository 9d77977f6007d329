"""Keras code as it is: the calls of its layers are cut by rows over towers."""
