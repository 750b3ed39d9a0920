"""Signs and verifies deliveries by the senders' Python libraries: a question a line in JSON on stdin, an answer a line on stdout.

A question: {"preset", "form"?, "action": "sign" | "verify", "secret", "method", "url", "headers", "body" (base64), "id"?, "timestamp"? (ms)}.
An answer: {"headers": {...}} or {"ok": true | false} or {"error": "..."}; headers come back beside those that were given.
"""

import base64
import hmac
import json
import sys
from datetime import datetime, timezone
from urllib.parse import parse_qs

from tools import TOOLS


def seconds(ask):
    return str(ask["timestamp"] // 1000)


def text(ask):
    return ask["body"].decode()


def plain(algorithm, ask, *pieces):
    key = ask["secret"].encode()
    return hmac.new(key, b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces), algorithm)


def to_base64(mac):
    return base64.b64encode(mac.digest()).decode()


def accepts(action):
    try:
        result = action()
    except Exception:
        return False
    return result is None or bool(result)


def standard(module, prefix):
    def load():
        return __import__(module, fromlist=["Webhook"]).Webhook

    def sign(ask):
        moment = datetime.fromtimestamp(ask["timestamp"] / 1000, tz=timezone.utc)
        signature = load()(ask["secret"]).sign(msg_id=ask["id"], timestamp=moment, data=text(ask))
        return {f"{prefix}-id": ask["id"], f"{prefix}-timestamp": seconds(ask), f"{prefix}-signature": signature}

    def verify(ask):
        load()(ask["secret"]).verify(text(ask), ask["headers"])
        return True

    return sign, verify


def sign_slack(ask):
    from slack_sdk.signature import SignatureVerifier

    signature = SignatureVerifier(ask["secret"]).generate_signature(timestamp=seconds(ask), body=ask["body"])
    return {"x-slack-request-timestamp": seconds(ask), "x-slack-signature": signature}


def verify_slack(ask):
    from slack_sdk.signature import SignatureVerifier

    return SignatureVerifier(ask["secret"]).is_valid_request(ask["body"], ask["headers"])


class Fields(dict):
    """A form as web frameworks give it to the library: several values of a name by `getlist`."""

    def getlist(self, name):
        return self[name]


def twilio_parameters(ask):
    if ask["headers"].get("content-type") != "application/x-www-form-urlencoded":
        return {}
    return Fields(parse_qs(text(ask), keep_blank_values=True))


def sign_twilio(ask):
    from twilio.request_validator import RequestValidator

    return {"x-twilio-signature": RequestValidator(ask["secret"]).compute_signature(ask["url"], twilio_parameters(ask))}


def verify_twilio(ask):
    from twilio.request_validator import RequestValidator

    is_json = "bodySHA256=" in ask["url"]
    parameters = text(ask) if is_json else twilio_parameters(ask)
    return RequestValidator(ask["secret"]).validate(ask["url"], parameters, ask["headers"]["x-twilio-signature"])


def sign_stripe(ask):
    from stripe import WebhookSignature

    payload = f"{seconds(ask)}.{text(ask)}"
    return {"stripe-signature": f"t={seconds(ask)},v1={WebhookSignature._compute_signature(payload, ask['secret'])}"}


def verify_stripe(ask):
    from stripe import WebhookSignature

    return WebhookSignature.verify_header(text(ask), ask["headers"]["stripe-signature"], ask["secret"], 300)


def verify_discord(ask):
    from nacl.signing import VerifyKey

    signed = ask["headers"]["x-signature-timestamp"].encode() + ask["body"]
    VerifyKey(bytes.fromhex(ask["secret"])).verify(signed, bytes.fromhex(ask["headers"]["x-signature-ed25519"]))
    return True


def sign_adyen(ask):
    from Adyen.util import generate_payload_sig

    return {"hmacsignature": generate_payload_sig(ask["body"], ask["secret"]).decode()}


def verify_adyen(ask):
    from Adyen.util import is_valid_hmac_payload

    return is_valid_hmac_payload(ask["headers"]["hmacsignature"], ask["secret"], ask["body"])


def verify_square(ask):
    from square.utils.webhooks_helper import verify_signature

    return verify_signature(
        request_body=text(ask),
        signature_header=ask["headers"]["x-square-hmacsha256-signature"],
        signature_key=ask["secret"],
        notification_url=ask["url"],
    )


# HubSpot's document has the receiver decode these before it asks the library, and no others.
HUBSPOT_DECODED = {"%3A": ":", "%2F": "/", "%3F": "?", "%40": "@", "%21": "!", "%24": "$"} | {
    "%27": "'",
    "%28": "(",
    "%29": ")",
    "%2A": "*",
    "%2C": ",",
    "%3B": ";",
}


def hubspot_uri(ask):
    uri = ask["url"]
    for escape, character in HUBSPOT_DECODED.items():
        uri = uri.replace(escape, character).replace(escape.lower(), character)
    return uri


def sign_hubspot(ask):
    from hubspot.utils.signature import Signature

    timestamp = str(ask["timestamp"])
    signature = Signature.get_signature(ask["secret"], text(ask), "v3", hubspot_uri(ask), ask["method"], timestamp)
    return {"x-hubspot-request-timestamp": timestamp, "x-hubspot-signature-v3": signature}


def verify_hubspot(ask):
    from hubspot.utils.signature import Signature

    headers = ask["headers"]
    return Signature.is_valid(
        headers["x-hubspot-signature-v3"],
        ask["secret"],
        text(ask),
        hubspot_uri(ask),
        ask["method"],
        "v3",
        headers["x-hubspot-request-timestamp"],
    )


def verify_elevenlabs(ask):
    from elevenlabs.client import ElevenLabs

    signature = ask["headers"]["elevenlabs-signature"]
    ElevenLabs(api_key="none").webhooks.construct_event(rawBody=text(ask), sig_header=signature, secret=ask["secret"])
    return True


def verify_polar(ask):
    from polar.webhooks import validate_event

    # The versioned modules load the content into their types after this, which takes seconds and proves nothing here.
    kind = json.loads(text(ask)).get("type")
    validate_event(text(ask), ask["headers"], ask["secret"], frozenset([kind]), lambda content: content)
    return True


def by_hashlib(header, algorithm, encode, prefix=""):
    """For senders with a document and no library: Python's own HMAC is a second opinion."""

    def sign(ask):
        return {header: prefix + encode(plain(algorithm, ask, ask["body"]))}

    def verify(ask):
        return hmac.compare_digest(ask["headers"][header], sign(ask)[header])

    return sign, verify


def to_hex(mac):
    return mac.hexdigest()


def sign_twitch(ask):
    moment = datetime.fromtimestamp(ask["timestamp"] // 1000, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    timestamp = f"{moment}.{ask['timestamp'] % 1000:03d}123456Z"
    signature = plain("sha256", ask, ask["id"], timestamp, ask["body"]).hexdigest()
    return {
        "twitch-eventsub-message-id": ask["id"],
        "twitch-eventsub-message-timestamp": timestamp,
        "twitch-eventsub-message-signature": f"sha256={signature}",
    }


SENDERS = TOOLS | {
    "standard-webhooks": standard("standardwebhooks", "webhook"),
    "svix": standard("svix.webhooks", "svix"),
    "slack": (sign_slack, verify_slack),
    "twilio": (sign_twilio, verify_twilio),
    "stripe": (sign_stripe, verify_stripe),
    "discord": (None, verify_discord),
    "adyen-platforms": (sign_adyen, verify_adyen),
    "square": (None, verify_square),
    "hubspot": (sign_hubspot, verify_hubspot),
    "elevenlabs": (None, verify_elevenlabs),
    "polar": (None, verify_polar),
    "twitch": (sign_twitch, None),
    "vercel": by_hashlib("x-vercel-signature", "sha1", to_hex),
    "woocommerce": by_hashlib("x-wc-webhook-signature", "sha256", to_base64),
    "x": by_hashlib("x-twitter-webhooks-signature", "sha256", to_base64, "sha256="),
    "meta": by_hashlib("x-hub-signature-256", "sha256", to_hex, "sha256="),
}


def answer(line):
    ask = json.loads(line)
    ask["body"] = base64.b64decode(ask["body"])
    sign, verify = SENDERS[ask["preset"]]
    if ask["action"] == "sign":
        return {"headers": sign(ask)}
    return {"ok": accepts(lambda: verify(ask))}


for line in sys.stdin:
    try:
        reply = answer(line)
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), flush=True)
