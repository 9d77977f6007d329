"""What models, data and towers may all import: helpers that import no TensorFlow."""
