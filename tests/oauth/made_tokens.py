"""Tokens as an authorization server makes them, for tests."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from coordinator.config import OAuthConfig, ServerConfig

NOW = 1_900_000_000.0
ISSUER, AUDIENCE = "https://login.example", "muster"
CLAIMS = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 600, "scope": "groups lag"}
RSA_KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
KEYS = {
    "rsa": (RSA_KEY, "RS256"),
    "ec": (ec.generate_private_key(ec.SECP256R1()), "ES256"),
    "ed": (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
}


def published(**keys):
    """Return the JSON Web Key Set of some keys, by id."""
    of = {"RS": jwt.algorithms.RSAAlgorithm, "PS": jwt.algorithms.RSAAlgorithm}
    of |= {"ES": jwt.algorithms.ECAlgorithm, "Ed": jwt.algorithms.OKPAlgorithm}
    listed = [
        of[algorithm[:2]].to_jwk(key.public_key(), as_dict=True) | {"kid": key_id, "use": "sig"}
        for key_id, (key, algorithm) in keys.items()
    ]
    return json.dumps({"keys": listed}).encode()


def token(key_id="rsa", headers=None, key=None, **changed):
    """Return a token; a claim of None is left out."""
    claims = {name: value for name, value in (CLAIMS | changed).items() if value is not None}
    ours, algorithm = KEYS.get(key_id, KEYS["rsa"])
    named = {"kid": key_id} if key_id else {}
    return jwt.encode(claims, key or ours, algorithm, headers=named | (headers or {}))


def pieces(header, claims, signature=b""):
    """Return a token of any header, claims and signature."""
    raw = [json.dumps(one).encode() for one in (header, claims)]
    return ".".join(
        base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in (*raw, signature)
    )


SAFE = ServerConfig(sasl_mechanisms=("OAUTHBEARER",), acls="conf/acls.toml")


def current(**changed):
    """Return a token as of now."""
    return token(**({"exp": time.time() + 600} | changed))


def token_settings(folder):
    """Return settings by which these tokens let clients in."""
    file = folder / "jwks.json"
    file.write_bytes(published(**KEYS))
    return OAuthConfig(jwks=str(file), issuer=ISSUER, audience=AUDIENCE)


class Publisher(ThreadingHTTPServer):
    """An authorization server, as far as it publishes keys."""

    def __init__(self, text):
        self.text, self.status, self.asked, self.headers = text, 200, 0, {}
        self.pause_s = 0.0
        self.posted, self.logins = [], []
        super().__init__(("127.0.0.1", 0), PublishedKeys)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/certs"
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def __exit__(self, *_error):
        self.shutdown()
        self.server_close()
        self.thread.join()


class PublishedKeys(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked += 1
        time.sleep(self.server.pause_s)
        self.server.logins.append(self.headers["Authorization"])
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.text)))
        self.end_headers()
        self.wfile.write(self.server.text)

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        self.server.posted.append((self.headers["Authorization"], self.rfile.read(size)))
        self.do_GET()

    def log_message(self, *_words):
        pass
