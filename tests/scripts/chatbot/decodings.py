"""What a trained chatbot answers to held-out questions, greedily, by a beam and by MMI.

Prints a row of metrics for each way to decode, and writes the first twenty exchanges of the
held-out part. The weights of MMI are tuned on held-out questions that the metrics do not ask.

    python -m tests.scripts.chatbot.decodings RUN --second RUN RUN --transcript FILE
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SHOWN = 20
KINDS = ("beams", "samples")
METRICS = ("bleu", "distinct_2", "entropy_2", "top_ten", "commonest", "empty_rate")


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluates a run with each way to decode."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="a run of the recipe chatbot")
    parser.add_argument("--second", nargs="*", default=[], help="runs that rerank its answers")
    parser.add_argument("--beam", type=int, default=5, help="of the beam search alone")
    parser.add_argument("--candidates", type=int, default=20, help="to rerank")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of candidates")
    parser.add_argument("--temperature", type=float, default=0.7, help="of samples")
    parser.add_argument("--questions", type=int, default=1000, help="to ask at most")
    parser.add_argument("--transcript", type=Path, help="a Markdown file to write")
    given = parser.parse_args(arguments)
    from towers.ground.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    ways = decode_each_way(given)
    if given.transcript:
        given.transcript.write_text(transcript(ways), encoding="utf-8")


def decode_each_way(given: argparse.Namespace) -> dict[str, Any]:
    """Prints the metrics and returns the first exchanges, by the name of a way to decode."""
    from towers.scripts.chatbot.chat_evaluator import ChatEvaluator
    from towers.scripts.chatbot.opening import decode_with
    from towers.scripts.training.options import DecodingOptions, DeviceOptions, EvaluateOptions
    from towers.scripts.training.saved_run import open_evaluation

    asked = (f"exam_questions={given.questions}",)
    session, checkpoint = open_evaluation(
        EvaluateOptions(given.run, devices=DeviceOptions(), overrides=asked)
    )
    evaluator = session.answer_evaluator
    if not isinstance(evaluator, ChatEvaluator):
        raise SystemExit(f"{given.run} answers no questions.")
    whole = {**session.evaluate(), **evaluator.evaluate(lambda line: None)}
    print(f"perplexity {whole['perplexity']:.1f}, hits@1/10 {whole['hits_1_10']:.3f}, ", end="")
    print(f"step {checkpoint.step}, {whole['asked']} questions", flush=True)
    pairs = session.data.corpus.held_out_pairs[:SHOWN]
    greedy = evaluator._ask(pairs)
    print(row("greedy", whole), flush=True)
    ways = {"greedy": greedy}
    searches = {f"beam {given.beam}": DecodingOptions(beam=given.beam)}
    for second in given.second:
        kinds = {
            "beams": DecodingOptions(beam=given.candidates),
            "samples": DecodingOptions(temperature=given.temperature, candidates=given.candidates),
        }
        for kind in given.kinds:
            name = f"MMI of {given.candidates} {kind}, {Path(second).name}"
            searches[name] = dataclasses.replace(kinds[kind], mmi=second)
    own = evaluator.answerer
    for name, options in searches.items():
        evaluator.answerer, evaluator.seed = own, 0
        print(decode_with(session, options, tune=options.mmi is not None), flush=True)
        print(row(name, evaluator.evaluate(lambda line: None)), flush=True)
        ways[name] = evaluator._ask(pairs)
    return ways


def row(name: str, metrics: dict[str, float]) -> str:
    """Returns the metrics of a way to decode as a row of a table."""
    return f"| {name} | {' | '.join(f'{metrics[one]:.3f}' for one in METRICS)} |"


def transcript(ways: dict[str, Any]) -> str:
    """Returns the exchanges as Markdown, one heading for each question."""
    lines = []
    for number, (asked, *_) in enumerate(zip(*ways.values(), strict=True), 1):
        lines += [f"### {number}", "", "Said: " + " / ".join(asked.turns), ""]
        lines += ["| Who | Answer |", "|---|---|", f"| the corpus | {asked.reference} |"]
        for name, exchanges in ways.items():
            lines.append(f"| {name} | {exchanges[number - 1].answer.text or '(nothing)'} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
