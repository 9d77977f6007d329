"""From a trained run and the options of decoding to what answers: a model, or two of them."""

from __future__ import annotations

import dataclasses

import keras

from towers.data.text import TextCodec
from towers.scripts.chatbot.answerer import Answerer, Chatbot, make_decoding
from towers.scripts.chatbot.chat_evaluator import ChatEvaluator
from towers.scripts.chatbot.ranking import AnswerRanker
from towers.scripts.chatbot.reranking import Reranker, SecondModel
from towers.scripts.chatbot.tuning import tune_reranking
from towers.scripts.training.options import DecodingOptions, ModelOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.training.saved_run import OpenModel, open_model
from towers.scripts.training.session import Session


def open_answerer(opened: OpenModel, options: DecodingOptions) -> Chatbot:
    """Returns what answers with a trained chatbot; raises ValueError for impossible options."""
    return make_answerer(opened.recipe, opened.model, opened.text, options)


def read_context(opened: OpenModel) -> int:
    """Returns how many earlier turns belong to a question: those that the run learned to read."""
    return opened.about.get("context", opened.recipe.fields.context)


def unread_tokens(opened: OpenModel, message: str) -> int:
    """Returns how many tokens at the beginning of a message are more than the model reads."""
    read = len(opened.text.read_question([message]).ids)
    return max(0, read - opened.recipe.fields.max_question_length)


def make_answerer(
    recipe: Recipe, model: keras.Model, text: TextCodec, options: DecodingOptions
) -> Chatbot:
    """Returns what answers with a model.

    Raises:
        ValueError: the options are impossible, the model answers no questions, or the second run
            cannot rerank.
    """
    if recipe.fields.direction != "forward":
        raise ValueError(
            f"This run was trained with direction={recipe.fields.direction}, so it reranks a "
            "chatbot's answers. Give the chatbot's run here, and this one with --mmi."
        )
    longest = recipe.fields.max_question_length
    decoding = make_decoding(options, recipe.fields.max_answer_length)
    answerer = Answerer(model, text, decoding, longest)
    check_reranking(options)
    if options.mmi is None:
        return answerer
    return Reranker(
        answerer,
        AnswerRanker(model, text, longest),
        open_second(options.mmi, recipe.fields.language),
        weight=options.mmi_weight,
        length_reward=options.length_reward,
        n_best=options.nbest,
    )


def decode_with(session: Session, options: DecodingOptions, *, tune: bool) -> dict[str, float]:
    """Makes a session's evaluator decode answers so; returns what tuning found, by name.

    Raises:
        ValueError: the session's model answers no questions, or the options are impossible.
    """
    recipe, evaluator = session.recipe, session.answer_evaluator
    if not isinstance(evaluator, ChatEvaluator):
        raise ValueError(
            f"A run of {recipe.name} gives no answers to decode or rerank; leave these options out."
        )
    chatbot = make_answerer(recipe, session.model, session.data.text, options)
    found = {}
    if tune and isinstance(chatbot, Reranker):
        best = tune_reranking(chatbot, evaluator, options.seed)
        chatbot = chatbot.weighted(best.weight, best.length_reward)
        found = {"mmi_weight": best.weight, "length_reward": best.length_reward}
    evaluator.answerer, evaluator.seed = chatbot, options.seed
    return found


def open_second(run_dir: str, language: str) -> SecondModel:
    """Returns the model of a run that reranks answers in a language; ValueError if it cannot."""
    policy = keras.config.dtype_policy()
    try:
        opened = open_model(ModelOptions(run_dir))
    finally:
        keras.config.set_dtype_policy(policy)  # The second run may have another precision.
    fields = opened.recipe.fields
    if fields.language != language:
        raise ValueError(
            f"{run_dir} was trained on language {fields.language}, the chatbot on {language}. "
            "--mmi takes a run of the same corpus."
        )
    if fields.direction == "forward":
        raise ValueError(
            f"{run_dir} was trained to answer. --mmi takes a run of the same corpus that was "
            "trained with --set direction=backward or --set direction=answers."
        )
    ranker = AnswerRanker(opened.model, opened.text, fields.max_question_length)
    return SecondModel(ranker, fields.direction)


def without_second(options: DecodingOptions) -> DecodingOptions:
    """Returns the options without a second run, and without what is said of one."""
    names = ("mmi", "candidates", "mmi_weight", "length_reward")
    return dataclasses.replace(options, **{one: getattr(DecodingOptions, one) for one in names})


def check_reranking(options: DecodingOptions) -> None:
    """Raises ValueError for options of reranking without a second run, or for a single answer."""
    if options.mmi is None:
        for name in ("candidates", "mmi_weight", "length_reward"):
            if getattr(options, name) != getattr(DecodingOptions, name):
                raise ValueError(
                    f"--{name.replace('_', '-')} belongs to reranking. Received it without --mmi; "
                    "give --mmi too, or leave it out."
                )
    elif options.beam > 1 and options.candidates != DecodingOptions.candidates:
        raise ValueError(
            f"--candidates {options.candidates} is the number of sampled answers, but --beam "
            f"{options.beam} searches. Give --temperature 0.7 instead of --beam, or a wider beam "
            "instead of --candidates."
        )
    elif options.beam < 2 and not options.samples:
        raise ValueError(
            "--mmi chooses among several answers. Received neither sampling nor a beam; give "
            "--temperature 0.7 or --beam 10."
        )


def check_tuning(options: DecodingOptions) -> None:
    """Raises ValueError unless there is a second run, and its weight is left to the search."""
    if options.mmi is None:
        raise ValueError(
            "--tune searches for the weight of the --mmi run. Received it without --mmi; give "
            "--mmi too, or leave --tune out."
        )
    for name in ("mmi_weight", "length_reward"):
        if getattr(options, name) != getattr(DecodingOptions, name):
            raise ValueError(
                f"--tune finds --{name.replace('_', '-')} itself. Received "
                f"{getattr(options, name)}; leave one of the two out."
            )
