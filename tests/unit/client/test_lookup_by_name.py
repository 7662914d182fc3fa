"""The name that was meant, where a queue or a counter does not exist."""

from __future__ import annotations

import pytest

from headgate.client.open_and_refresh import decide_near
from headgate.store.catalogue.entry import Name


@pytest.mark.parametrize(
    ("known", "near"),
    [
        (["shop/emails", "shop/orders"], "shop/emails"),
        (["shop/orders", "mail/email"], "mail/email"),
        (["shop/orders", "shpo/emails"], "shpo/emails"),
        (["shop/orders", "mail/bills"], None),
        ([], None),
    ],
)
def test_a_name_of_the_namespace_goes_before_a_namesake_elsewhere_and_that_before_what_is_written_alike(
    known: list[str], near: str | None
) -> None:
    name = Name("Queue", "shop", "email")
    assert near == decide_near(name, [each for each in known if each.startswith("shop/")], known)
