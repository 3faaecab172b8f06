"""Reading an exposition back, with the parser of the library that Prometheus' own people wrote."""

from prometheus_client.parser import text_string_to_metric_families

from relay.metrics import Metrics


class Scrape:
    """The samples of one exposition, by name and labels."""

    def __init__(self, text: bytes) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text.decode())}
        samples = [sample for family in self.families.values() for sample in family.samples]
        self.values = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
        assert len(self.values) == len(samples), "no series stands there twice"

    def value(self, name: str, **labels: str) -> float:
        """The value of the sample with exactly these labels."""
        return self.values[name, tuple(sorted(labels.items()))]

    def has(self, name: str, **labels: str) -> bool:
        """Whether there is such a sample."""
        return (name, tuple(sorted(labels.items()))) in self.values


def scrape(metrics: Metrics) -> Scrape:
    """What Prometheus would read from this process now."""
    return Scrape(metrics.exposition()[1])
