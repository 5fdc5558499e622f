"""What happens to one request, from the first byte received to the last byte sent."""
