"""A model as an HTTP server: predictions in batches, live labels, explanations, and a page to try it.

Needs the extra ``serve``: ``pip install 'megalabel[serve]'``. :func:`megalabel.serve.app.create_app` gives the app,
:func:`megalabel.serve.run_server.run_server` runs it, as ``megalabel serve`` does. Nothing is imported here, so that a
wrong option or a port in use is told before torch is there.
"""
