// The page: a conversation that is kept in this tab, asked over the API of the same server.
"use strict";

const CONVERSATION = "towers.conversation";
const THEME = "towers.theme";
const DRAFT = "towers.draft";
const TOKEN = "towers.token";
// What the page says in Chinese; what the server refuses, by the code of its error.
const CHINESE = {
  "Skip to the question": "跳到输入框",
  "Chatbot": "聊天机器人",
  "Chatbot: ": "机器人：",
  "You: ": "你：",
  "Dark": "深色",
  "New": "新对话",
  "New conversation": "开始新对话",
  "Conversation": "对话",
  "Messages": "消息",
  "Nothing was said yet. The conversation stays in this tab.":
    "还没有消息。对话只保存在这个标签页里。",
  "The chatbot reads each message alone.": "机器人只看每条消息本身。",
  "The chatbot reads your message and the {} before it.": "机器人会看你的消息和它前面的 {} 条。",
  "You can ask, for example:": "可以这样问：",
  "Copy": "复制",
  "Copied.": "已复制。",
  "Retry": "重试",
  "Ask again, for one answer more": "再问一次，多要一个回答",
  "Options": "选项",
  "Answers": "回答个数",
  "Temperature": "温度",
  "none": "无",
  "Token": "令牌",
  "Question": "问题",
  "Say something": "说点什么",
  "Send": "发送",
  "Stop": "停止",
  "Enter sends; Shift and Enter begin a new line.": "按回车键发送，按上档键加回车键换行。",
  "This page needs JavaScript.": "此页面需要启用 JavaScript。",
  "The chatbot thinks.": "机器人正在想。",
  "Stopped.": "已停止。",
  "A new conversation.": "新的对话。",
  "Say instead: {}": "改为：{}",
  "This answer was cut: it had become as long as it may be.": "这个回答被截断了：已达到长度上限。",
  "This message is longer than the chatbot reads: only its end counted.":
    "这条消息太长，机器人只看了最后一部分。",
  "A message has at most {} characters, this one {}. Shorten it.":
    "一条消息最多 {} 个字符，这条有 {} 个，请缩短。",
  "The server cannot be reached.": "无法连接服务器。",
  "The server says {}.": "服务器返回 {}。",
  "This browser keeps nothing for this page, so the conversation ends with it.":
    "浏览器不为此页面保存数据，关闭页面后对话就会消失。",
  "bug": "服务器内部出错。",
  "invalid_api_key": "需要正确的令牌，请在选项中填写。",
  "timeout": "机器人没有及时回答，请稍后再问。",
  "too_many_requests": "正在等待的人太多，请稍后再问。",
};
const isChinese = /^zh/i.test(navigator.languages.find((one) => /^(en|zh)/i.test(one)));

const part = (id) => document.getElementById(id);
const say = (text, ...values) => values.reduce(
  (said, value) => said.replace("{}", () => value), (isChinese && CHINESE[text]) || text);
let model = null;
// Each has a role, a content, perhaps a note, and perhaps others: answers that may take its place.
let messages = readConversation();
let asking = null; // The AbortController of the request that runs.

start();

function start() {
  translate();
  applyTheme(read(localStorage, THEME));
  part("token").value = read(sessionStorage, TOKEN) || "";
  part("question").value = read(sessionStorage, DRAFT) || "";
  window.addEventListener("pagehide", () => write(sessionStorage, DRAFT, part("question").value));
  part("form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  part("question").addEventListener("keydown", sendOnEnter);
  part("question").addEventListener("input", () => { grow(); complain(tooLong()); });
  part("send").addEventListener("click", stop);
  part("copy").addEventListener("click", copy);
  part("retry").addEventListener("click", retry);
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

function translate() {
  document.documentElement.lang = isChinese ? "zh" : "en";
  for (const element of document.body.querySelectorAll("*")) {
    for (const name of ["aria-label", "placeholder", "title"]) {
      if (element.hasAttribute(name)) element.setAttribute(name, say(element.getAttribute(name)));
    }
    for (const node of element.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) node.data = say(node.data.trim());
    }
  }
}

// The conversation.

function readConversation() {
  try {
    const found = JSON.parse(read(sessionStorage, CONVERSATION) || "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

function keep() {
  write(sessionStorage, CONVERSATION, JSON.stringify(messages));
}

function forget() {
  if (asking) asking.abort();
  work(null);
  messages = [];
  keep();
  show();
  announce(say("A new conversation."));
  complain("");
  part("question").focus();
}

function show() {
  part("conversation").replaceChildren(...messages.map(bubble));
  part("empty").hidden = messages.length > 0;
  part("after").hidden = asking !== null || !messages.length;
  part("copy").hidden = !navigator.clipboard; // Browsers have none for pages without TLS.
  part("main").scrollTop = 0; // The end, since it is reversed.
}

// Returns the element of a message: text is never read as HTML.
function bubble(message) {
  const item = element("div", `message ${message.role}`);
  const speaker = element("span", "unseen", say(message.role === "user" ? "You: " : "Chatbot: "));
  item.append(speaker, message.content || "…");
  if (message.note) item.append(element("small", "note", say(message.note)));
  (message.others || []).forEach((other, index) => {
    const button = element("button", "other", other.content || "…");
    button.type = "button";
    button.setAttribute("aria-label", say("Say instead: {}", other.content));
    button.addEventListener("click", () => {
      message.others[index] = { content: message.content, note: message.note };
      Object.assign(message, { note: undefined, ...other });
      keep();
      const changed = bubble(message);
      item.replaceWith(changed);
      changed.querySelectorAll("button")[index].focus();
      announce(say("Chatbot: ") + message.content);
    });
    item.append(button);
  });
  return item;
}

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  made.dir = "auto"; // Arabic and Hebrew from the right.
  return made;
}

// Asking.

function ask() {
  const question = part("question").value.trim();
  if (!question || asking) return;
  if (tooLong()) {
    complain(tooLong());
    return;
  }
  part("question").value = "";
  grow();
  send(question, messages, Number(part("choices").value) || 1).then((answered) => {
    if (answered || part("question").value) return;
    part("question").value = question; // It got no answer.
    grow();
  });
}

function retry() {
  const others = messages.at(-1).others || [];
  const question = messages.at(-2).content;
  send(question, messages.slice(0, -2), Math.min(others.length + 2, model.max_choices));
}

function stop(event) {
  if (!asking) return;
  event.preventDefault();
  if (event.detail < 2) asking.abort(); // The second click of two was meant for Send.
}

function copy() {
  navigator.clipboard.writeText(messages.at(-1).content).then(
    () => announce(say("Copied.")), (error) => complain(error.message));
}

// Returns whether a question was answered; the conversation is as before if not.
async function send(question, earlier, choices) {
  const before = messages;
  const own = new AbortController();
  messages = [...earlier, { role: "user", content: question }];
  complain("");
  work(own);
  try {
    messages = [...messages, await answer(own.signal, choices)];
    keep();
    return true;
  } catch (error) {
    if (asking !== own) return true; // The conversation was forgotten.
    messages = before;
    complain(own.signal.aborted ? "" : error.message);
    announce(own.signal.aborted ? say("Stopped.") : "");
    return false;
  } finally {
    if (asking === own) work(null);
  }
}

function work(controller) {
  asking = controller;
  part("send").textContent = say(asking ? "Stop" : "Send");
  part("status").textContent = asking ? say("The chatbot thinks.") : "";
  if (asking) announce(say("The chatbot thinks."));
  show();
}

// Returns the chatbot's next message; marks the last one if it was longer than what is read.
async function answer(signal, choices) {
  if (!model) await loadModel();
  const most = Math.min(1 + model.context, model.max_messages);
  const body = {
    model: model.id,
    messages: messages.slice(-most).map(({ role, content }) => ({ role, content })),
    n: choices,
  };
  if (part("temperature").value !== "") body.temperature = Number(part("temperature").value);
  const found = await (await call("v1/chat/completions", signal, body)).json();
  if (found.usage.unread_tokens) {
    messages.at(-1).note = "This message is longer than the chatbot reads: only its end counted.";
  }
  const [first, ...others] = found.choices.map((choice) => ({
    content: choice.message.content,
    note: choice.finish_reason === "length"
      ? "This answer was cut: it had become as long as it may be." : undefined,
  }));
  announce(say("Chatbot: ") + first.content);
  return { role: "assistant", ...first, others };
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
  } catch {
    throw new Error(say("The server cannot be reached."));
  }
  if (response.ok) return response;
  if (response.status === 401) askForToken();
  const { error } = await response.json().catch(() => ({}));
  if (!error) throw new Error(say("The server says {}.", response.status));
  throw new Error((isChinese && CHINESE[error.code]) || error.message);
}

function askForToken() {
  part("token-label").hidden = false;
  part("options").open = true;
  part("token").focus();
}

async function loadModel() {
  const response = await call("v1/models");
  [model] = (await response.json()).data;
  part("name").textContent = model.title;
  document.title = model.title;
  part("greeting").textContent = model.greeting;
  part("greeting").hidden = !model.greeting;
  part("memory").textContent = model.context
    ? say("The chatbot reads your message and the {} before it.", model.context)
    : say("The chatbot reads each message alone.");
  part("example-label").hidden = !model.examples.length;
  part("examples").replaceChildren(...model.examples.map((text) => {
    const button = element("button", "other", text);
    button.type = "button";
    button.addEventListener("click", () => {
      part("question").value = text;
      ask();
    });
    return button;
  }));
  part("choices").max = model.max_choices;
}

function showModel() {
  loadModel().catch((error) => complain(error.message));
}

// Small things.

function tooLong() {
  const length = [...part("question").value.trim()].length;
  if (!model || length <= model.max_message_length) return "";
  return say("A message has at most {} characters, this one {}. Shorten it.",
    model.max_message_length, length);
}

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
    complain(say("This browser keeps nothing for this page, so the conversation ends with it."));
  }
}
