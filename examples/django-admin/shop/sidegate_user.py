from django.contrib.auth.middleware import RemoteUserMiddleware


class SidegateUserMiddleware(RemoteUserMiddleware):
    header = "HTTP_SIDEGATE_USER"
