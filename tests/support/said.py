"""What was logged, with the fields that travel beside a record's message."""

import pytest


def said(caplog: pytest.LogCaptureFixture) -> str:
    """All of it as one text."""
    return "\n".join(
        f"{record.getMessage()} {getattr(record, 'fields', {})} {record.exc_text or record.exc_info or ''}"
        for record in caplog.records
    )
