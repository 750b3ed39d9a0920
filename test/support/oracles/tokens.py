"""Judges deliveries with tokens and RSA signatures by libraries of the senders, and PyJWT: a vector a line in JSON on stdin, `true` or `false` a line on stdout."""

import base64
import datetime
import hashlib
import json
import sys
import zlib
from unittest import mock
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.x509 import load_pem_x509_certificate


def rsa(vector, text, signature):
    secret = vector["secret"]
    pem = secret if secret.startswith("-----") else f"-----BEGIN PUBLIC KEY-----\n{secret}\n-----END PUBLIC KEY-----\n"
    key = serialization.load_pem_public_key(pem.encode())
    key.verify(base64.b64decode(signature), text, padding.PKCS1v15(), hashes.SHA256())


def decode(token, key, algorithm, vector, **options):
    """The times are checked at the time of the vector, which PyJWT cannot be given."""
    claims = jwt.decode(token, key, algorithms=[algorithm], options={"verify_exp": False, "verify_iat": False, "verify_aud": False, "enforce_minimum_key_length": False}, **options)
    at = vector["atEpochSeconds"]
    if "exp" in claims and claims["exp"] <= at - 60:
        raise ValueError("expired")
    return claims


def check(condition):
    if not condition:
        raise ValueError("refused")


def digest(body):
    return hashlib.sha256(body).hexdigest()


def judge_paypal(vector, headers, body):
    text = "|".join([headers["paypal-transmission-id"], headers["paypal-transmission-time"], vector["receiverId"], str(zlib.crc32(body))])
    rsa(vector, text.encode(), headers["paypal-transmission-sig"])


def judge_alipay(vector, headers, body):
    fields = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
    signature, kind = fields.pop("sign"), fields.pop("sign_type")
    check(kind == "RSA2")
    rsa(vector, "&".join(f"{name}={fields[name]}" for name in sorted(fields)).encode(), signature)


def judge_plaid(vector, headers, body):
    key = jwt.PyJWK(json.loads(vector["secret"])).key
    claims = decode(headers["plaid-verification"], key, "ES256", vector)
    check(claims["request_body_sha256"] == digest(body))
    check(vector["atEpochSeconds"] - claims["iat"] <= 300)


def judge_google(vector, headers, body):
    from google.auth import _helpers, jwt as google_jwt

    now = datetime.datetime.fromtimestamp(vector["atEpochSeconds"], datetime.timezone.utc).replace(tzinfo=None)
    token = headers["authorization"].removeprefix("Bearer ")
    with mock.patch.object(_helpers, "utcnow", return_value=now):
        claims = google_jwt.decode(token, certs=vector["secret"], audience=vector["audience"], clock_skew_in_seconds=60)
    check(claims["iss"] in ("https://accounts.google.com", "accounts.google.com"))
    check(claims["email"] in vector["claims"]["$.email"] and claims["email_verified"] is True)


def judge_event_grid(vector, headers, body):
    claims = decode(headers["authorization"].removeprefix("Bearer "), vector["secret"], "RS256", vector, issuer=vector["claims"]["$.iss"][0])
    check(claims["aud"] in vector["audience"] and claims["appid"] == "4962773b-9cdb-44cf-a8bf-237846a00ab7" and "exp" in claims)


def judge_vonage(vector, headers, body):
    from vonage_jwt import verify_signature

    token = headers["authorization"].removeprefix("Bearer ")
    check(verify_signature(token, vector["secret"]))
    claims = decode(token, vector["secret"], "HS256", vector, issuer="Vonage")
    check(claims["payload_hash"] == digest(body))


def judge_apple(vector, headers, body):
    from appstoreserverlibrary.models.Environment import Environment
    from appstoreserverlibrary.signed_data_verifier import SignedDataVerifier

    root = load_pem_x509_certificate(vector["secret"].encode()).public_bytes(serialization.Encoding.DER)
    verifier = SignedDataVerifier([root], False, Environment.SANDBOX, vector["audience"][0])
    verifier.verify_and_decode_notification(json.loads(body)["signedPayload"])


def judge_netlify(vector, headers, body):
    claims = decode(headers["x-webhook-signature"], vector["secret"], "HS256", vector, issuer="netlify")
    check(claims["sha256"] == digest(body))


def judge_monday(vector, headers, body):
    check("exp" in decode(headers["authorization"], vector["secret"], "HS256", vector))


JUDGES = {
    "alipay": judge_alipay,
    "wise": lambda vector, headers, body: rsa(vector, body, headers["x-signature-sha256"]),
    "paypal": judge_paypal,
    "paypal-sandbox": judge_paypal,
    "plaid": judge_plaid,
    "google-pubsub": judge_google,
    "azure-event-grid": judge_event_grid,
    "azure-event-grid-cloudevents": judge_event_grid,
    "vonage": judge_vonage,
    "netlify": judge_netlify,
    "monday": judge_monday,
    "wix": lambda vector, headers, body: decode(body.decode(), vector["secret"], "RS256", vector),
    "apple-app-store": judge_apple,
}

for line in sys.stdin:
    vector = json.loads(line)
    try:
        JUDGES[vector["preset"]](vector, vector["headers"], base64.b64decode(vector["bodyBase64"]))
        print("true", flush=True)
    except Exception as problem:
        print(f"false {type(problem).__name__}", flush=True)
