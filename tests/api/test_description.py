"""Claims about how the API describes itself: nothing that it does is left out, nothing is made up."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fastapi.routing import APIRoute

from relay import gateway
from relay.api import calls, documentation
from relay.api.examples import BODIES
from relay.web.problems import ERRORS, ErrorCode
from tests.api.description import DOCUMENT, contents, operations
from tests.api.world import World
from tests.support.administration import bearer


async def document(world: World) -> Any:
    reply = await world.get("/openapi.json")
    assert reply.status == 200
    return reply.json()


async def test_the_description_is_openapi_3_1_of_this_version(shared_world: World) -> None:
    described = await document(shared_world)
    assert described["openapi"].startswith("3.1")
    assert described["info"]["version"] == "1.2.3"


async def test_no_call_has_the_description_made_while_others_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(documentation, "describe", made.append)
    for path in ("/v1/receipts", "/v1/dead-letters", "/docs", "/openapi.json"):
        assert (await world.get(path)).status == 200
    assert made == []


async def test_every_route_is_described_and_every_described_one_is_there(shared_world: World) -> None:
    served = {
        (method, route.path_format)
        for route in shared_world.api.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods or ()
    }
    described = {(each["method"], each["path"]) for each in operations(await document(shared_world)).values()}
    assert described == served | {("POST", path) for path in shared_world.ingest}


@pytest.mark.parametrize("name", operations())
def test_every_error_is_described_as_a_problem_document(name: str) -> None:
    for status, response in operations()[name]["responses"].items():
        if int(status) >= 400 and "Not ready" not in response["description"]:
            assert list(response["content"]) == ["application/problem+json"], status


@pytest.mark.parametrize("name", operations())
def test_every_call_is_described_in_words(name: str) -> None:
    operation = operations()[name]
    assert re.fullmatch(r"[A-Z][a-z].+[^.]", operation["summary"])
    assert operation["summary"].lower() != name.replace("_", " ")
    for parameter in operation.get("parameters", ()):
        assert parameter["schema"].keys() & {"type", "enum", "$ref"}, parameter["name"]
        assert parameter.get("description"), parameter["name"]
    for response in operation["responses"].values():
        assert response["description"] != "Successful Response"


@pytest.mark.parametrize(("name", "which"), [(name, which) for name, which, _ in contents()])
def test_every_body_and_every_answer_has_an_example_of_its_shape(name: str, which: str) -> None:
    (said,) = [said for a, b, said in contents() if (a, b) == (name, which)]
    examples = [each["value"] for each in said["examples"].values()] if "examples" in said else [said["example"]]
    shape = {**said.get("schema", {}), "components": DOCUMENT["components"]}
    validator = jsonschema_rs.Draft202012Validator(shape, validate_formats=True)
    assert [str(fault) for example in examples for fault in validator.iter_errors(example)] == []


async def test_the_examples_of_bodies_are_taken(world: World) -> None:
    world.shown.append(bearer((await world.credentials.key("operator")).secret))
    endpoint, accepted = await world.create(), await world.post_event()
    ids = {
        "endpoints": endpoint["id"],
        "receipts": accepted["receipt_id"],
        "sources": (await world.send("POST", "/v1/sources", {"name": "older", "auth": ["hmac"]})).json()["id"],
        "tenants": BODIES["create_tenant"]["application/json"]["id"],
    }
    for name, body in BODIES.items():
        operation = operations()[name]
        path = operation["path"].replace("{id}", ids.get(operation["path"].split("/")[2], ""))
        value = body["application/json"]
        if name == "acknowledge":
            value = {"delivery_id": accepted["deliveries"][0]["id"]}
        for each in operation.get("parameters", ()):
            if each["in"] == "path" and each["name"] != "id":
                path = path.replace(f"{{{each['name']}}}", each["schema"]["examples"][0])
        reply = await world.send(operation["method"], path, value)
        assert str(reply.status) in operation["responses"], (name, reply)
        assert reply.status < 300, (name, reply)


async def test_the_codes_of_a_problem_are_those_of_the_table(shared_world: World) -> None:
    problem = (await document(shared_world))["components"]["schemas"]["Problem"]
    assert problem["properties"]["code"]["enum"] == [str(code) for code in ERRORS]


def test_the_ingest_names_every_code_with_which_it_refuses() -> None:
    sources = "".join(source.read_text() for source in Path(gateway.__file__).parent.glob("*.py"))
    refused = {str(ErrorCode[name]) for name in re.findall(r"ErrorCode\.([A-Z_]+)", sources)}
    responses = str(operations()["post_event"]["responses"])
    # of another method, and of a test event whose endpoint is gone
    assert {code for code in refused if f"`{code}`" not in responses} == {"method_not_allowed", "not_found"}


async def test_every_reference_leads_somewhere_and_every_shape_is_referred_to(shared_world: World) -> None:
    described = await document(shared_world)
    referred = set(re.findall(r"#/components/schemas/(\w+)", str(described)))
    assert referred == set(described["components"]["schemas"])


def test_operation_ids_are_unique() -> None:
    names = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


async def test_only_what_hands_out_a_new_secret_has_one_in_its_answer(shared_world: World) -> None:
    schemas = (await document(shared_world))["components"]["schemas"]
    with_a_secret = {name for name, schema in schemas.items() if "secret" in schema.get("properties", {})}
    assert with_a_secret == {
        *("EndpointNew", "EndpointCreated", "SecretGiven", "SecretRotated"),
        *("KeyCreated", "SourceChanged", "SourceCreated", "SourceRotated"),
    }


async def test_the_page_shows_every_call_and_every_code(shared_world: World) -> None:
    reply = await shared_world.get("/docs")
    page = reply.body.decode()
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    for path in (await document(shared_world))["paths"]:
        assert f"<code>{path}</code>" in page
    for code in ERRORS:
        assert f'id="{code}"' in page


async def test_the_page_is_for_people(shared_world: World) -> None:
    page = (await shared_world.get("/docs")).body.decode()
    assert "`" not in page
    for operation in operations().values():
        assert f"<span>{html.escape(operation['summary'])}</span>" in page
        for parameter in operation.get("parameters", ()):
            assert f"<td><code>{parameter['name']}</code>" in page
    for line in re.findall(r"^curl .*$", calls.reference(DOCUMENT), re.MULTILINE):
        assert f"<pre>{html.escape(line)}</pre>" in page


async def test_the_page_needs_nothing_from_elsewhere(shared_world: World) -> None:
    reply = await shared_world.get("/docs")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert not re.search(rb"(?:src|href)=\"(?!/openapi\.json|#)", reply.body)
    assert b"<script" not in reply.body
