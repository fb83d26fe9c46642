"""Tools of a host that holds keys: in closures, clients, addresses, and in what goes wrong."""

import os
from collections.abc import Callable
from typing import Any

import httpx
import sqlalchemy

from kernel_agent import tool

PRICES = {"apples": 3.0, "pears": 4.0}
CLIENT = httpx.Client(headers={"Authorization": f"Bearer {os.environ['SHOP_API_KEY']}"})
DATABASE = f"postgresql+psycopg://analyst:{os.environ['DATABASE_PASSWORD']}@127.0.0.1:1/shop"
ENGINE = sqlalchemy.create_engine(DATABASE)


def _priced(key: str) -> Callable[[str], float]:
    def look_up(product: str) -> float:
        assert key
        return PRICES[product]

    return look_up


_look_up = _priced(os.environ["INNOCENT_NOTE"])


@tool
def price(product: str) -> float:
    """Return the price of a product."""
    return _look_up(product)


@tool
def stock(product: str) -> Any:
    """Return what is in stock; of an unknown product, something without a form of its own."""
    return 7 if product in PRICES else CLIENT


@tool
async def shop_page(product: str) -> str:
    """Return the shop's page of a product, which cannot be reached."""
    headers = dict(CLIENT.headers)
    # Without certificates, which take long to read: nothing answers there.
    async with httpx.AsyncClient(headers=headers, trust_env=False, verify=False) as client:
        return (await client.get(f"http://127.0.0.1:1/{product[:20]}")).text


@tool
def sold(product: str) -> int:
    """Return how many were sold, from a database that cannot be reached."""
    try:
        with ENGINE.connect():
            return 0
    except sqlalchemy.exc.OperationalError as error:
        raise ConnectionError(f"cannot connect to {DATABASE} for {product[:20]}") from error


@tool
def refused(product: str) -> int:
    """Return a number from a service that refuses the key and quotes it."""
    try:
        raise PermissionError(f"401: wrong key {os.environ['OPENAI_API_KEY']!r}")
    except PermissionError as error:
        raise RuntimeError(f"{product[:20]}: {error}", CLIENT.headers) from error


@tool
def settings(product: str) -> dict[str, str]:
    """Return the settings of a product, among which somebody put the key."""
    return {product[:20]: "sold by weight", "key": os.environ["SHOP_API_KEY"]}
