"""Serves the routes of ../framework.ts with a framework of Python, named by the first argument."""
import json
import sys
from importlib.metadata import version


def flask_app():
    from flask import Flask, request

    app = Flask("frameworks", static_folder=None)
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

    def serve(handler):
        def view(**_):
            return {"handler": handler, "path": request.path, "method": request.method, "host": request.host}

        return view

    def add(rule, handler):
        app.add_url_rule(rule, endpoint=f"{handler} {rule}", view_func=serve(handler), methods=methods, provide_automatic_options=False)

    add("/admin", "admin")
    add("/admin/<path:rest>", "admin")
    add("/hooks/billing", "billing")
    add("/account", "account")
    add("/", "open")
    add("/<path:rest>", "open")
    return app


def django_app():
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import JsonResponse
    from django.urls import re_path

    def serve(handler):
        def view(request, *_):
            return JsonResponse({"handler": handler, "path": request.path_info, "method": request.method, "host": request.META.get("HTTP_HOST", "")})

        return view

    urls = type(sys)("frameworks_urls")
    urls.urlpatterns = [
        re_path(r"^admin(/|$)", serve("admin")),
        re_path(r"^hooks/billing$", serve("billing")),
        re_path(r"^account$", serve("account")),
        re_path(r"", serve("open")),
    ]
    sys.modules["frameworks_urls"] = urls
    settings.configure(ROOT_URLCONF="frameworks_urls", ALLOWED_HOSTS=["*"], SECRET_KEY="x" * 50, MIDDLEWARE=["django.middleware.common.CommonMiddleware"])
    return get_wsgi_application()


def starlette_app():
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    class Every:
        """An ASGI endpoint of one route, for all methods."""

        def __init__(self, handler):
            self.handler = handler

        async def __call__(self, scope, receive, send):
            headers = dict(scope["headers"])
            body = {"handler": self.handler, "path": scope["path"], "method": scope["method"], "host": headers.get(b"host", b"").decode("latin-1")}
            await JSONResponse(body)(scope, receive, send)

    return Starlette(
        routes=[
            Route("/admin", Every("admin")),
            Route("/admin/{rest:path}", Every("admin")),
            Route("/hooks/billing", Every("billing")),
            Route("/account", Every("account")),
            Route("/{rest:path}", Every("open")),
        ]
    )


def serve_wsgi(app, name):
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    class Handler(WSGIRequestHandler):
        def log_message(self, *_):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    server.set_app(app)
    print(f"listening {server.server_port} {version(name)}", flush=True)
    server.serve_forever()


def serve_asgi(app, name):
    import socket

    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    print(f"listening {listener.getsockname()[1]} {version(name)}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])


def serve_werkzeug(app, name):
    import logging

    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(f"listening {server.server_port} {version(name)}", flush=True)
    server.serve_forever()


def serve_gunicorn(app, name):
    from gunicorn.app.base import BaseApplication

    def ready(server):
        print(f"listening {server.LISTENERS[0].getsockname()[1]} {version(name)}", flush=True)

    class Application(BaseApplication):
        def load_config(self):
            for key, value in {"bind": "127.0.0.1:0", "worker_class": "gthread", "loglevel": "critical", "when_ready": ready}.items():
                self.cfg.set(key, value)

        def load(self):
            return app

    Application().run()


def serve_daphne(app, name):
    from daphne.server import Server

    def ready():
        print(f"listening {server.listening_addresses[0][1]} {version(name)}", flush=True)

    server = Server(application=app, endpoints=["tcp:port=0:interface=127.0.0.1"], ready_callable=ready)
    server.run()


NAME = sys.argv[1]
if NAME == "flask":
    serve_werkzeug(flask_app(), NAME)
elif NAME == "django":
    serve_wsgi(django_app(), NAME)
elif NAME == "starlette":
    serve_asgi(starlette_app(), NAME)
elif NAME == "gunicorn":
    serve_gunicorn(flask_app(), NAME)
elif NAME == "daphne":
    django_app()
    from django.core.asgi import get_asgi_application

    serve_daphne(get_asgi_application(), NAME)
else:
    sys.exit(f"unknown framework {NAME}")
