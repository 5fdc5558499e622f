"""What happens to one request, from the first byte received to the last byte sent?

``http_limits`` reads it, ``handler`` runs the steps, ``request`` parses it, ``decide`` chooses the tier, ``fit`` and
``images`` fit the images to their grants, ``upstream`` forwards it, ``usage`` compares the server's count.
"""
