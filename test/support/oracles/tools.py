"""Signs and verifies as senders of development, work, media and voice document it, by Python's HMAC: a second opinion beside tools.ts."""

import base64
import hashlib
import hmac

UTF8 = str.encode


def to_hex(digest):
    return digest.hex()


def to_base64(digest):
    return base64.b64encode(digest).decode()


def seconds(ask):
    return str(ask["timestamp"] // 1000)


def milliseconds(ask):
    return str(ask["timestamp"])


def mac(key, algorithm, message):
    return hmac.new(key, message, getattr(hashlib, algorithm)).digest()


def of_body(header, prefix="", algorithm="sha256", encode=to_hex, key=UTF8):
    """The body alone."""

    def sign(ask):
        return {header: prefix + encode(mac(key(ask["secret"]), algorithm, ask["body"]))}

    return sign, lambda ask: hmac.compare_digest(ask["headers"][header], sign(ask)[header])


def of_time(header, form, message, unit, time_header=None, encode=to_hex):
    """The time and the body; the time is a header, or stands in the header of the signature."""

    def write(ask, time):
        signed = message.replace("{time}", time).encode().replace(b"{body}", ask["body"])
        signature = encode(mac(ask["secret"].encode(), "sha256", signed))
        headers = {header: form.replace("{time}", time).replace("{signature}", signature)}
        return headers if time_header is None else {time_header: time, **headers}

    def read_time(ask):
        if time_header is not None:
            return ask["headers"][time_header]
        start, _, rest = form.partition("{time}")
        return ask["headers"][header].removeprefix(start).split(rest[0])[0]

    def verify(ask):
        return hmac.compare_digest(ask["headers"][header], write(ask, read_time(ask))[header])

    return (lambda ask: write(ask, unit(ask))), verify


def sign_trello(ask):
    message = ask["body"] + ask["url"].encode()
    return {"x-trello-webhook": to_base64(mac(ask["secret"].encode(), "sha1", message))}


def verify_trello(ask):
    return hmac.compare_digest(ask["headers"]["x-trello-webhook"], sign_trello(ask)["x-trello-webhook"])


def sign_linkedin(ask):
    return {"x-li-signature": to_hex(mac(ask["secret"].encode(), "sha256", b"hmacsha256=" + ask["body"]))}


def verify_linkedin(ask):
    return hmac.compare_digest(ask["headers"]["x-li-signature"], sign_linkedin(ask)["x-li-signature"])


def verify_telnyx(ask):
    from nacl.signing import VerifyKey

    headers = ask["headers"]
    signed = headers["telnyx-timestamp"].encode() + b"|" + ask["body"]
    VerifyKey(base64.b64decode(ask["secret"])).verify(signed, base64.b64decode(headers["telnyx-signature-ed25519"]))
    return True


TOOLS = {
    "jira": of_body("x-hub-signature", "sha256="),
    "bitbucket": of_body("x-hub-signature", "sha256="),
    "gitea": of_body("x-gitea-signature"),
    "forgejo": of_body("x-forgejo-signature"),
    "gogs": of_body("x-gogs-signature"),
    "circleci": of_body("circleci-signature", "v1="),
    "buildkite": of_time("x-buildkite-signature", "timestamp={time},signature={signature}", "{time}.{body}", seconds),
    "terraform-cloud": of_body("x-tfe-notification-signature", algorithm="sha512"),
    "sentry": of_body("sentry-hook-signature"),
    "heroku": of_body("heroku-webhook-hmac-sha256", encode=to_base64),
    "launchdarkly": of_body("x-ld-signature"),
    "sonarqube": of_body("x-sonar-webhook-hmac-sha256"),
    "tailscale": of_time("tailscale-webhook-signature", "t={time},v1={signature}", "{time}.{body}", seconds),
    "statsig": of_time(
        "x-statsig-signature", "v0={signature}", "v0:{time}:{body}", milliseconds, "x-statsig-request-timestamp"
    ),
    "cursor": of_body("x-webhook-signature", "sha256="),
    "snyk": of_body("x-hub-signature", "sha256="),
    "expo": of_body("expo-signature", "sha1=", "sha1"),
    "mongodb-atlas": of_body("x-mms-signature", algorithm="sha1", encode=to_base64),
    "dub": of_body("dub-signature"),
    "scrapfly": of_body("x-scrapfly-webhook-signature"),
    "akeneo": of_time(
        "x-akeneo-request-signature", "{signature}", "{time}.{body}", seconds, "x-akeneo-request-timestamp"
    ),
    "clio": of_body("x-hook-signature"),
    "smartcar": of_body("sc-signature"),
    "pylon": of_time(
        "pylon-webhook-signature", "hs256={signature}", "{time}.{body}", seconds, "pylon-webhook-timestamp"
    ),
    "notion": of_body("x-notion-signature", "sha256="),
    "asana": of_body("x-hook-signature"),
    "trello": (sign_trello, verify_trello),
    "airtable": of_body("x-airtable-content-mac", "hmac-sha256=", key=base64.b64decode),
    "clickup": of_body("x-signature"),
    "todoist": of_body("x-todoist-hmac-sha256", encode=to_base64),
    "segment": of_body("x-signature", algorithm="sha1"),
    "nylas": of_body("x-nylas-signature"),
    "courier": of_time("courier-signature", "t={time},signature={signature}", "{time}.{body}", milliseconds),
    "knock": of_time("x-knock-signature", "t={time},s={signature}", "{time}.{body}", milliseconds, encode=to_base64),
    "ashby": of_body("ashby-signature", "sha256="),
    "greenhouse": of_body("signature", "sha256 "),
    "modern-treasury": of_body("x-signature"),
    "tally": of_body("tally-signature", encode=to_base64),
    "hookdeck": of_body("x-hookdeck-signature", encode=to_base64),
    "mux": of_time("mux-signature", "t={time},v1={signature}", "{time}.{body}", seconds),
    "cloudflare-stream": of_time("webhook-signature", "time={time},sig1={signature}", "{time}.{body}", seconds),
    "frame-io": of_time(
        "x-frameio-signature", "v0={signature}", "v0:{time}:{body}", seconds, "x-frameio-request-timestamp"
    ),
    "bunny-stream": of_body("x-bunnystream-signature"),
    "retell": of_time("x-retell-signature", "v={time},d={signature}", "{body}{time}", milliseconds),
    "fireflies": of_body("x-hub-signature", "sha256="),
    "pusher": of_body("x-pusher-signature"),
    "enode": of_body("x-enode-signature", "sha1=", "sha1"),
    "alchemy": of_body("x-alchemy-signature"),
    "linkedin": (sign_linkedin, verify_linkedin),
    "telnyx": (None, verify_telnyx),
}
