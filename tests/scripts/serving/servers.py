"""What tests of the service share: a chatbot without a model, and a server in this process."""

import contextlib
import functools
import threading

import httpx

from tests.programs import PATIENCE, wait_until
from towers.scripts.serving import api, server
from towers.scripts.serving.batching import Batcher
from towers.scripts.serving.options import Limits, ServeOptions
from towers.scripts.serving.served_chatbot import Replies, Reply
from towers.scripts.training.options import DecodingOptions, DeviceOptions

MODEL = "echo"
PATH = "/v1/chat/completions"
LOCAL = ("localhost", "127.0.0.1", "[::1]")


class Echo:
    """A chatbot that says what it was told, as soon as it may.

    Attributes:
        batches: the requests of each batch.
        may_answer: an event; while it is not set no batch is answered.
        unread: how many tokens of a question it does not read.
        is_cut: whether its answers are cut.
        error: raised instead of an answer, unless None.
        says: what it says to some questions.
    """

    context = 2
    examples = ("an example",)

    def __init__(self):
        self.batches = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.unread = 0
        self.is_cut = False
        self.error = None
        self.says = {}

    def group(self, request):
        return request.temperature

    def rows(self, request):
        return request.choices

    def answer(self, requests):
        self.batches.append(requests)
        assert self.may_answer.wait(PATIENCE)
        if self.error:
            raise self.error
        return [self.replies(request) for request in requests]

    def replies(self, request):
        text = self.says.get(request.turns[-1], request.turns[-1])
        replies = [
            Reply(text + "!" * number, 1, self.is_cut, -1.0 * number)
            for number in range(request.choices)
        ]
        return Replies(replies, 1, self.unread)


def options_of(limits, *, nbest=1, **own):
    """Returns the options of a service with these limits."""
    groups = {"decoding": DecodingOptions(nbest=nbest), "devices": DeviceOptions()}
    return ServeOptions("run", limits=limits, **groups, **own)


@contextlib.contextmanager
def serving(chatbot, *, access=None, **limits):
    """Serves a chatbot on loopback; yields a client of its address, with a method `stop`."""
    own, chosen = {"hosts": LOCAL} if access is None else dict(access), Limits(**limits)
    token, hosts = own.pop("token", None), own.pop("hosts", None)
    options = options_of(chosen, **own)
    sizes = {"max_batch": chosen.max_batch, "max_waiting": chosen.max_waiting}
    with server.bind("127.0.0.1", 0) as bound, Batcher(chatbot.answer, **sizes) as batcher:
        app = api.make_app(api.Service(options, MODEL, chatbot, batcher, token, hosts))
        uvicorn_server = server.make_server(app, chosen.timeout, chosen.max_waiting)
        thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": bound})
        thread.start()
        wait_until(lambda: uvicorn_server.started, "the server starts")
        with httpx.Client(base_url=server.address_of(bound), timeout=PATIENCE) as client:
            client.stop = functools.partial(setattr, uvicorn_server, "should_exit", True)
            try:
                yield client
            finally:
                client.stop()
                chatbot.may_answer.set()
                thread.join()


def asking(*contents, **options):
    """Returns the body of a request: messages of the user and of the chatbot by turns."""
    roles = ("user", "assistant")
    messages = [
        {"role": roles[index % 2], "content": content} for index, content in enumerate(contents)
    ]
    return {"model": MODEL, "messages": messages, **options}


def error_of(response):
    """Returns the error of a refused request, which has the shape of OpenAI's."""
    assert 400 <= response.status_code < 600
    (error,) = response.json().values()
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return error
