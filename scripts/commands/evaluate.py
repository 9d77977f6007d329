"""`towers evaluate`: the test metrics of a run's checkpoint.

towers evaluate runs/shapes --checkpoint latest
towers evaluate runs/chatbot --beam 5 --json
"""

from __future__ import annotations

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.shown import show, show_json
from towers.scripts.training.options import USUAL_DECODING, DecodingOptions, EvaluateOptions
from towers.scripts.training.recipe import UNKNOWN_ALARM, describe_unknown
from towers.scripts.wrong_input import wrong_input

USUAL = {
    *("run_dir", "checkpoint", "data", "batch_size", "overrides", "classes", "tune", "json"),
    *USUAL_DECODING,
}


def run(options: EvaluateOptions) -> int:
    """Prints the metrics, and with --json as one object in the last line."""
    import_tensorflow_quietly()
    from towers.scripts.chatbot.answer_metrics import import_bleu
    from towers.scripts.chatbot.opening import check_tuning, decode_with
    from towers.scripts.classifying.confusion import count_confusions, describe
    from towers.scripts.classifying.predictions import check_images, check_one_label
    from towers.scripts.training.run_directory import RunDirectory
    from towers.scripts.training.run_output import describe_evaluation
    from towers.scripts.training.saved_run import dynamically, open_evaluation

    with wrong_input():
        if options.tune:
            check_tuning(options.decoding)
        if options.classes:
            check_images(options.run_dir, "--classes")
        session, checkpoint = open_evaluation(options)
        evaluator = session.answer_evaluator
        if not session.data.test.steps_per_epoch:
            paths = options.data or RunDirectory(options.run_dir).read()["data"] or ()
            where = f" in {', '.join(paths)}" if paths else ""
            raise ValueError(f"There is no data to evaluate on{where}. Give another --data.")
        if evaluator is not None:
            import_bleu()  # Not at the end of a long evaluation, where it is used.
        if options.classes:
            check_one_label(session)
        tuned = {}
        if options.tune or options.decoding != DecodingOptions():
            tuned = decode_with(session, options.decoding, tune=options.tune)
    with wrong_input(OSError):  # Such as a file of the data that is gone.
        how = dynamically(session, options.dynamic) if options.dynamic else None
        metrics = session.evaluate(how)
        if evaluator is not None:
            metrics.update(evaluator.evaluate(show))
        metrics.update(tuned)
        confusion = count_confusions(session) if options.classes else None
    show(describe_evaluation(session, checkpoint.step, metrics))
    if metrics.get("unknown_rate", 0) > UNKNOWN_ALARM:
        show(describe_unknown(metrics["unknown_rate"]))
    if confusion is not None:
        show("\n".join(describe(confusion)))
        metrics["confusion"] = confusion.counts.tolist()
    if options.json:
        metrics["examples"] = round(metrics["examples"])
        metrics[session.recipe.unit] = metrics["examples"]
        source = {"step": checkpoint.step, "checkpoint": str(checkpoint.path)}
        show_json({**metrics, "part": session.data.evaluated, **source})
    return 0
