"""What happens to one request, from the first byte received to the last byte sent?

``http_limits`` reads it, ``sites`` and ``clients`` know who asks, ``handler`` runs the steps, ``scan`` finds what may
be an image, ``request`` parses it, ``decide`` chooses the tier, ``fit`` and ``images`` fit the images to their grants,
``upstream`` forwards it, ``usage`` compares the server's count.
"""
