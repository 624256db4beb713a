"""Serves a model over HTTP: batched predictions, live labels, explanations, and a page to try it.

Needs the extra ``serve``: ``pip install 'megalabel[serve]'``. :func:`megalabel.serve.app.create_app` returns the app,
:func:`megalabel.serve.server.run_server` runs it, as ``megalabel serve`` does. This file imports nothing, so that the
command line reports an invalid option or a port in use before torch is loaded.
"""
