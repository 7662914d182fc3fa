"""The name of a lane: numbers that its engine chooses, such as generation and shard, or group and extent. Pure.

Only the engine knows what they mean. Everything else compares names, sorts them, prints them, and stores them as
opaque bytes: in receipts, and in the members' claims. Lanes whose first numbers are equal are shared out together.
"""

from __future__ import annotations

LaneName = tuple[int, ...]

_MORE = 0x80


def encode_lane(name: LaneName) -> bytes:
    """Each number in groups of seven bits, the lowest first; the top bit marks that more follow (LEB128)."""
    encoded = bytearray()
    for number in name:
        rest = number
        while rest >= _MORE:
            encoded.append(rest & (_MORE - 1) | _MORE)
            rest >>= 7
        encoded.append(rest)
    return bytes(encoded)


def decode_lane(encoded: bytes) -> LaneName:
    """The output of `encode_lane`; ValueError for other bytes."""
    numbers: list[int] = []
    number = shift = 0
    for byte in encoded:
        number |= (byte & (_MORE - 1)) << shift
        shift += 7
        if byte < _MORE:
            numbers.append(number)
            number = shift = 0
    if encode_lane(tuple(numbers)) != encoded:
        raise ValueError("not the name of a lane")
    return tuple(numbers)


def format_lane(name: LaneName) -> str:
    """As logs, figures and commands show it."""
    return "/".join(map(str, name))


def parse_lane(text: str) -> LaneName:
    """The output of `format_lane`."""
    return tuple(map(int, text.split("/")))
