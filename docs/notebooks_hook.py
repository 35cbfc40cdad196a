"""Renders the notebooks into the site: nbconvert makes Markdown of each, pictures and all, at every build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = "notebooks"


def notebooks(config: Any) -> list[Path]:
    """Return the notebooks beside the documentation."""
    return sorted((Path(config["docs_dir"]).parent / FOLDER).glob("*.ipynb"))


def on_config(config: Any) -> Any:
    """Add them to the navigation, before the reference."""
    pages = [f"{FOLDER}/{path.stem}.md" for path in notebooks(config)]
    nav = config["nav"]
    place = next((k for k, entry in enumerate(nav) if entry == "theory.md"), len(nav))
    config["nav"] = [*nav[:place], {"Notebooks": pages}, *nav[place:]]
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add a page for every notebook and a file for every picture in it."""
    from mkdocs.structure.files import File
    from nbconvert import MarkdownExporter
    from nbconvert.preprocessors import ClearMetadataPreprocessor

    exporter = MarkdownExporter(preprocessors=[ClearMetadataPreprocessor])
    for path in notebooks(config):
        names = {"unique_key": path.stem, "output_files_dir": path.stem}
        text, resources = exporter.from_filename(str(path), resources=names)
        files.append(File.generated(config, f"{FOLDER}/{path.stem}.md", content=text))
        for name, data in resources.get("outputs", {}).items():
            files.append(File.generated(config, f"{FOLDER}/{name}", content=data))
    return files
