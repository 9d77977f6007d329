"""Images: readers of data sets, augmentation, batches."""
