"""What is masked, and what stays readable. No database."""

from __future__ import annotations

import pytest

from django_idempotency.inspection import redaction


class TestRedaction:
    @pytest.mark.parametrize(
        "name",
        [
            *(
                "password",
                "client_secret",
                "clientSecret",
                "X-Api-Key",
                "access_token",
                "cvv",
                "cvc2",
                "card_pin",
            ),
            *(
                "PIN",
                "cardNumber",
                "card-number",
                "IBAN",
                "private key",
                "Set-Cookie",
                "otpCode",
                "refreshTokenHash",
            ),
        ],
    )
    def test_secret_names(self, name: str) -> None:
        assert redaction.secret_name(name)

    @pytest.mark.parametrize(
        "name",
        ["shipping", "spin", "amount", "panel", "key", "id", "currency", "Idempotency-Key", ""],
    )
    def test_other_names(self, name: str) -> None:
        assert not redaction.secret_name(name)

    @pytest.mark.parametrize(
        ("text", "secret"),
        [
            ("card 4242424242424242 charged", "424242424242"),
            ("card 4242 4242 4242 4242.", "4242 4242 4242"),
            ("4000-0566-5566-5556", "4000-0566"),
            ("6212345678901232", "62123456"),  # UnionPay
            ("pay DE89 3704 0044 0532 0130 00 NOW", "3704 0044"),
            ("GB82WEST12345698765432", "WEST123"),
            ("Authorization: Bearer abc.def-ghi", "abc.def"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIi"),
            ("use sk_live_abcdefgh12345", "abcdefgh"),
            ("eyJ-begins-like-one-sk_live_abcdefgh12345", "abcdefgh"),
            ("x-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0", "eyJzdWIi"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
            ("-----BEGIN PRIVATE KEY-----\nMIIE", "MIIE"),
            ("a=1&password=hunter2&b=2", "hunter2"),
            ('{"password": "hunter2 or 3", ', "hunter2"),
            ("{'api_key': 'hunter2'}", "hunter2"),
            ("/reset?token=hunter2", "hunter2"),
            ('<input type="hidden" name="csrfmiddlewaretoken" value="hunter2">', "hunter2"),
            ("<input value=hunter2 name=password>", "hunter2"),
            ('<meta name="csrf-token" content="hunter2">', "hunter2"),
            ("<a><password kind='x'>hunter2</password></a>", "hunter2"),
        ],
    )
    def test_text(self, text: str, secret: str) -> None:
        assert secret in text
        assert secret not in redaction.text(text)
        assert "redacted" in redaction.text(text)

    @pytest.mark.parametrize(
        "text",
        [
            "order 1234567890123 of 2026-11-20 14:16:28",
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "amount=2499&currency=inr",
            "a token of thanks",
            "https://example.com/charges/17/",
            "<p>shipping: fast</p>",
            "",
        ],
    )
    def test_text_that_stays(self, text: str) -> None:
        assert redaction.text(text) == text

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ('{"token": "a"}', '{\n  "token": "[redacted]"\n}'),
            ('{"token": {"deep": 1}}', '{\n  "token": "[redacted]"\n}'),
            ('{"pin": 1234}', '{\n  "pin": "[redacted]"\n}'),
            ('{"pin": 0}', '{\n  "pin": "[redacted]"\n}'),
            (
                '{"token": null, "pin": "", "password": true}',
                '{\n  "token": null,\n  "pin": "",\n  "password": true\n}',
            ),
            (
                '[{"a": {"cvv": "1"}}]',
                '[\n  {\n    "a": {\n      "cvv": "[redacted]"\n    }\n  }\n]',
            ),
            ("4242424242424242", '"[redacted …4242]"'),
            ('{"4242424242424242": 1}', '{\n  "[redacted …4242]": 1\n}'),
            ('{"a": 1, "a": 2}', '{\n  "a": 1,\n  "a": 2\n}'),  # both are shown
            ("0.10", "0.10"),  # as it was written
            ("1e400", "1e400"),
            ("[NaN, -0]", "[\n  NaN,\n  -0\n]"),
            ("[]", "[]"),
            ("{}", "{}"),
            ("null", "null"),
            ("false", "false"),
            ('"é"', '"é"'),
            ('{"\\udc00": "\\ud800"}', '{\n  "\\udc00": "\\ud800"\n}'),  # lone surrogates
        ],
    )
    def test_json(self, value: str, shown: str) -> None:
        assert redaction.json_text(value) == shown

    @pytest.mark.parametrize(
        "value", ["", "{", "nope", "[" * 100_000, '{"a":' * 2000 + "1" + "}" * 2000]
    )
    def test_no_json(self, value: str) -> None:
        assert redaction.json_text(value) is None

    def test_a_deep_nest_is_not_blown_up(self) -> None:
        """Indentation stops at a readable depth: a margin before each of many values would inflate
        the response.
        """
        value = "[" * 300 + ",".join("0" * 20_000) + "]" * 300
        shown = redaction.json_text(value)
        assert shown is not None
        assert len(shown) < 30 * len(value)
        assert "".join(shown.split()) == value

    def test_headers(self) -> None:
        pairs = [("Set-Cookie", "a=b"), ("X-Auth", "c"), ("Location", "/?token=d"), ("ETag", '"e"')]
        assert [value for _, value in redaction.headers(pairs)] == [
            *(redaction.MASK, redaction.MASK),
            *(f"/?token={redaction.MASK}", '"e"'),
        ]

    @pytest.mark.parametrize(
        "value",
        [
            *(
                "1 " * 50_000,
                "a=" * 50_000,
                "<a " * 50_000,
                "AB12" * 50_000,
                "-----BEGIN " * 20_000,
                '"' * 50_000,
            ),
            "eyJ-" * 50_000,
        ],
    )
    def test_time_is_linear(self, value: str) -> None:
        """No text makes the patterns scan it again and again."""
        import time

        began = time.process_time()
        redaction.text(value)
        assert time.process_time() - began < 5
