// The page: a conversation that is kept in this browser, asked over the API of the same server.
"use strict";

const CONVERSATION = "towers.conversation";
const THEME = "towers.theme";
const TOKEN = "towers.token";
const KEPT = 200; // Messages in the browser's store.

const part = (id) => document.getElementById(id);
let model = null;
let messages = readConversation();
let asking = null; // The AbortController of the request that runs.

start();

function start() {
  applyTheme(read(localStorage, THEME));
  part("token").value = read(sessionStorage, TOKEN) || "";
  part("form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  part("question").addEventListener("keydown", sendOnEnter);
  part("question").addEventListener("input", grow);
  part("new").addEventListener("click", forget);
  part("theme").addEventListener("click", switchTheme);
  part("token").addEventListener("change", () => {
    write(sessionStorage, TOKEN, part("token").value);
    complain("");
    showModel();
  });
  show();
  showModel();
  part("question").focus();
}

// The conversation.

function readConversation() {
  try {
    const found = JSON.parse(read(localStorage, CONVERSATION) || "[]");
    const isMessage = (one) => one && ["user", "assistant"].includes(one.role)
      && typeof one.content === "string";
    return Array.isArray(found) ? found.filter(isMessage) : [];
  } catch {
    return [];
  }
}

function keep() {
  messages = messages.slice(-KEPT);
  write(localStorage, CONVERSATION, JSON.stringify(messages));
}

function forget() {
  if (asking) asking.abort();
  messages = [];
  keep();
  show();
  announce("A new conversation.");
  complain("");
  part("question").focus();
}

function show() {
  part("conversation").replaceChildren();
  for (const message of messages) bubble(message.role, message.content);
  showWhetherEmpty();
}

function showWhetherEmpty() {
  part("empty").hidden = part("conversation").childElementCount > 0;
}

// Returns the text node of a new message: text is never read as HTML.
function bubble(role, content) {
  const item = document.createElement("div");
  item.className = `message ${role}`;
  const speaker = document.createElement("span");
  speaker.className = "unseen";
  speaker.textContent = role === "user" ? "You: " : "Chatbot: ";
  const text = document.createTextNode(content);
  item.append(speaker, text);
  part("conversation").append(item);
  showWhetherEmpty();
  item.scrollIntoView({ block: "end" });
  return text;
}

// Asking.

async function ask() {
  const question = part("question").value.trim();
  if (!question || asking) return;
  complain("");
  messages.push({ role: "user", content: question });
  bubble("user", question);
  part("question").value = "";
  grow();
  asking = new AbortController();
  part("send").disabled = true;
  part("status").textContent = "The chatbot thinks.";
  announce("The chatbot thinks.");
  const own = asking;
  try {
    await answer(own);
    keep();
  } catch (error) {
    if (!own.signal.aborted) giveBack(question, error);
  } finally {
    asking = null;
    part("send").disabled = false;
    part("status").textContent = "";
  }
}

// Puts a question back that got no answer.
function giveBack(question, error) {
  messages.pop();
  show();
  part("question").value = part("question").value || question;
  grow();
  complain(error.message);
}

async function answer(own) {
  if (!model) await loadModel();
  const response = await call("v1/chat/completions", own.signal, request());
  const texts = [];
  let first = null;
  for await (const found of events(response)) {
    for (const choice of found.choices || []) {
      texts[choice.index] = (texts[choice.index] || "") + (choice.delta.content || "");
      if (choice.index) continue;
      first = first || bubble("assistant", "");
      first.data = texts[0] || "…";
    }
  }
  if (own.signal.aborted) return;
  if (!first) throw new Error("The answer broke off. Ask again.");
  const message = { role: "assistant", content: texts[0] };
  messages.push(message);
  if (texts.length > 1) offer(texts, message, first);
  first.parentNode.scrollIntoView({ block: "end" });
  announce(`Chatbot: ${texts[0] || "nothing"}`);
}

function request() {
  const body = {
    model: model.id,
    messages: messages.slice(-Math.min(1 + model.context, model.max_messages)),
    n: Number(part("choices").value) || 1,
    stream: true,
  };
  if (part("temperature").value !== "") body.temperature = Number(part("temperature").value);
  return body;
}

// Shows the further answers, any of which can take the place of the first.
function offer(texts, message, first) {
  texts.slice(1).forEach((text) => {
    const other = document.createElement("button");
    other.type = "button";
    other.className = "other";
    other.textContent = text || "…";
    other.setAttribute("aria-label", `Say instead: ${text}`);
    other.addEventListener("click", () => {
      const before = message.content;
      message.content = text;
      first.data = text || "…";
      text = before;
      other.textContent = text || "…";
      other.setAttribute("aria-label", `Say instead: ${text}`);
      keep();
      announce(`Chatbot: ${message.content}`);
    });
    first.parentNode.append(other);
  });
}

// Yields the objects of a stream of server-sent events; a stream without its end is an error.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The answer broke off. Ask again.");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") return;
      if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
    }
  }
}

// Returns a response of the API; an error has the server's own words.
async function call(address, signal, body) {
  const headers = { "Content-Type": "application/json" };
  const token = part("token").value;
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = body
    ? { method: "POST", headers, signal, body: JSON.stringify(body) }
    : { headers, signal };
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    throw signal && signal.aborted ? error : new Error("The server cannot be reached.");
  }
  if (response.ok) return response;
  if (response.status === 401) askForToken();
  const found = await response.json().catch(() => ({}));
  throw new Error(found.error ? found.error.message : `The server says ${response.status}.`);
}

function askForToken() {
  part("token-label").hidden = false;
  part("options").open = true;
  part("token").focus();
}

async function loadModel() {
  const response = await call("v1/models");
  [model] = (await response.json()).data;
  part("name").textContent = model.id;
  document.title = model.id;
  part("choices").max = model.max_choices;
  part("question").maxLength = model.max_message_length;
}

function showModel() {
  loadModel().catch((error) => complain(error.message));
}

// Small things.

function sendOnEnter(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  part("form").requestSubmit();
}

function grow() {
  const question = part("question");
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight + 2}px`;
}

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  write(localStorage, THEME, theme);
  applyTheme(theme);
}

function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  part("theme").setAttribute("aria-pressed", String(isDark()));
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// What screen readers say; the others see it in the conversation.
function announce(text) {
  part("announcement").textContent = text;
}

function complain(text) {
  part("error").textContent = text;
}

// A browser may keep nothing for this page.
function read(store, name) {
  try {
    return store.getItem(name);
  } catch {
    return null;
  }
}

function write(store, name, value) {
  try {
    store.setItem(name, value);
  } catch {
    complain("This browser keeps nothing for this page, so the conversation ends with it.");
  }
}
