"""The data: readers, pipelines and the embedded samples."""
