"""What stands around the service: a proxy with the guide's configuration, and another site's page.

The page is one with OpenAI's own client for browsers, which npm fetches.
"""

import contextlib
import functools
import http.server
import re
import shutil
import socket
import subprocess
import threading

import httpx
import pytest

from tests.browsers import NEEDS_BROWSER, open_browser
from tests.paths import ROOT
from tests.programs import PATIENCE, started, wait_until
from tests.scripts.serving.servers import LOCAL, PATH, Echo, asking, error_of, serving
from towers.scripts.launching.cluster import free_ports

pytestmark = pytest.mark.slow
NAME = "bot.example"
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
    fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen 127.0.0.1:{port}; {block} }}
}}
"""
CADDY = "{{\nadmin off\nauto_https off\ndefault_bind 127.0.0.1\n}}\n{block}"
PAGE = """
<!doctype html><meta charset="utf-8"><title>waits</title>
<script type="module">
  import OpenAI from "./node_modules/openai/index.mjs";
  window.talk = async (baseURL, apiKey, stream) => {
    const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, dangerouslyAllowBrowser: true });
    const messages = [{ role: "user", content: "hello 你好" }];
    try {
      const answer = await client.chat.completions.create({ model: "echo", messages, stream });
      if (!stream) return answer.choices[0].message.content;
      let said = "";
      for await (const piece of answer) said += piece.choices[0].delta.content ?? "";
      return said;
    } catch (error) { return `${error.constructor.name} ${error.status} ${error.message}`; }
  };
  document.title = "ready";
</script>
"""


def block_of_guide(language, address, port):
    """Returns a configuration of the guide for a server and a port of the proxy."""
    text = (ROOT / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    for written, own in (("127.0.0.1:8000", address), (f"{NAME} {{", f"http://{NAME}:{port} {{")):
        block = block.replace(written, own)
    return block


@contextlib.contextmanager
def proxy(program, client, folder):
    """Yields a client of a proxy before a service."""
    (port,), file = free_ports(1), folder / "conf"
    address = f"{client.base_url.host}:{client.base_url.port}"
    template = {"nginx": NGINX, "caddy": CADDY}[program]
    block = block_of_guide(program, address, port)
    file.write_text(template.format(folder=folder, port=port, block=block))
    command = {
        "nginx": ["nginx", "-p", folder, "-c", file],
        "caddy": ["caddy", "run", "--adapter", "caddyfile", "--config", file],
    }[program]
    with started(command):
        found = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Host": NAME}, timeout=PATIENCE
        )
        with found:
            wait_until(functools.partial(answers, port), "the proxy listens")
            yield found


def answers(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("program", ["nginx", "caddy"])
def test_the_guide_s_proxies_pass_on_answers_names_and_that_a_client_left(
    program, tmp_path, capsys
):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    chatbot = Echo()
    access = {"hosts": (*LOCAL, NAME), "access_log": True}
    with (
        serving(chatbot, access=access) as client,
        proxy(program, client, tmp_path) as behind,
    ):
        assert "chat.js" in behind.get("/").text
        response = behind.post(PATH, json=asking("hello 你好", stream=True))
        assert response.status_code == 200 and response.text.endswith("data: [DONE]\n\n")
        assert f" http://{NAME}/v1." in error_of(behind.get("/chat"))["message"]
        chatbot.may_answer.clear()
        with pytest.raises(httpx.ReadTimeout):
            behind.post(PATH, json=asking("hello"), timeout=1.0)
        wait_until(lambda: f"POST {PATH} 499 " in capsys.readouterr().out, "it is noticed")
        chatbot.may_answer.set()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a site whose page has OpenAI's client."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text(PAGE)
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "openai"]
    got = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    if got.returncode:
        pytest.skip(f"npm cannot fetch openai: {got.stderr[-200:]}")
    return folder


@contextlib.contextmanager
def hosted(folder):
    """Yields the origin of a site on this machine."""
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def browser(tmp_path):
    with open_browser(tmp_path) as browser:
        yield browser


@NEEDS_BROWSER[1]
def test_openai_s_client_in_the_page_of_a_permitted_site(site, browser):
    def talk(key, stream):
        script = "const [url, key, stream, done] = arguments; talk(url, key, stream).then(done)"
        return browser.execute_async_script(script, str(client.base_url.join("/v1")), key, stream)

    with hosted(site) as permitted, hosted(site) as other:
        access = {"token": "secret", "allow_origin": (permitted,)}
        with serving(Echo(), access=access) as client:
            for origin in (permitted, other):
                browser.get(origin)
                wait_until(lambda: browser.title == "ready", "the client is loaded")
                said = [talk("secret", stream) for stream in (False, True)]
                refused = talk("wrong", False)
                if origin == permitted:
                    assert said == ["hello 你好"] * 2
                    assert refused.startswith("AuthenticationError 401") and "Bearer" in refused
                else:
                    assert all(one.startswith("APIConnectionError") for one in (*said, refused))
