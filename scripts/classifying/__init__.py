"""What a trained image network says: of files, and of its test data class by class."""
