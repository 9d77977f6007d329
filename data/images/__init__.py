"""Image data sets: readers, augmentation, batches."""
