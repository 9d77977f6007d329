"""Batches of ids: pairs of dialogues; streams, pieces and sentences of a text."""
