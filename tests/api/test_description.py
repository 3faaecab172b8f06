"""Claims about how the API describes itself: nothing that it does is left out, nothing is made up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute

from relay import gateway
from relay.web.problems import ERRORS, ErrorCode
from tests.api.world import World


async def document(world: World) -> Any:
    reply = await world.get("/openapi.json")
    assert reply.status == 200
    return reply.json()


def operations(described: Any) -> dict[tuple[str, str], Any]:
    return {
        (method.upper(), path): operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


async def test_the_description_is_openapi_3_1_of_this_version(shared_world: World) -> None:
    described = await document(shared_world)
    assert described["openapi"].startswith("3.1")
    assert described["info"]["version"] == "1.2.3"


async def test_every_route_is_described_and_the_ingest_ones_too(shared_world: World) -> None:
    served = {
        (method, route.path)
        for route in shared_world.api.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods or ()
    }
    assert set(operations(await document(shared_world))) == {
        *served,
        ("POST", "/v1/events"),
        ("POST", "/v1/events/batch"),
    }


async def test_every_error_is_described_as_a_problem_document(shared_world: World) -> None:
    for operation in operations(await document(shared_world)).values():
        for status, response in operation["responses"].items():
            if int(status) >= 400 and "Not ready" not in response["description"]:
                assert list(response["content"]) == ["application/problem+json"], (operation["operationId"], status)


async def test_the_codes_of_a_problem_are_those_of_the_table(shared_world: World) -> None:
    problem = (await document(shared_world))["components"]["schemas"]["Problem"]
    assert problem["properties"]["code"]["enum"] == [str(code) for code in ERRORS]


async def test_the_ingest_names_every_code_with_which_it_refuses(shared_world: World) -> None:
    sources = "".join(source.read_text() for source in Path(gateway.__file__).parent.glob("*.py"))
    refused = {str(ErrorCode[name]) for name in re.findall(r"ErrorCode\.([A-Z_]+)", sources)}
    responses = str(operations(await document(shared_world))["POST", "/v1/events"]["responses"])
    assert {code for code in refused if f"`{code}`" not in responses} == {"method_not_allowed"}


async def test_every_reference_leads_somewhere_and_every_shape_is_referred_to(shared_world: World) -> None:
    described = await document(shared_world)
    referred = set(re.findall(r"#/components/schemas/(\w+)", str(described)))
    assert referred == set(described["components"]["schemas"])


async def test_operation_ids_are_unique(shared_world: World) -> None:
    names = [operation["operationId"] for operation in operations(await document(shared_world)).values()]
    assert len(names) == len(set(names))


async def test_only_what_hands_out_a_new_secret_has_one_in_its_answer(shared_world: World) -> None:
    schemas = (await document(shared_world))["components"]["schemas"]
    with_a_secret = {name for name, schema in schemas.items() if "secret" in schema.get("properties", {})}
    assert with_a_secret == {"EndpointNew", "EndpointCreated", "SecretRotated"}


async def test_the_page_shows_every_call_and_every_code(shared_world: World) -> None:
    reply = await shared_world.get("/docs")
    page = reply.body.decode()
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    for path in (await document(shared_world))["paths"]:
        assert f"<code>{path}</code>" in page
    for code in ERRORS:
        assert f'id="{code}"' in page


async def test_the_page_needs_nothing_from_elsewhere(shared_world: World) -> None:
    reply = await shared_world.get("/docs")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert not re.search(rb"(?:src|href)=\"(?!/openapi\.json)", reply.body)
    assert b"<script" not in reply.body
