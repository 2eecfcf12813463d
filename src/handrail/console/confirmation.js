// One request for a confirmation, at the address that a client of MCP shows: `/console/confirmation.html#ID`. The key is the
// console's, from this tab; it must be another than the key of the client that made the call.
import { forgetKey, get, key, post, setKey, takeKeyFromAddress, takeTicketFromAddress } from "./api.js";
import { button, h, icon, jsonBlock, toolName } from "./dom.js";
import { clockView } from "./clock-view.js";
import { visible } from "./hidden-characters.js";
import { RUNNING, runView } from "./running.js";
import { showingView } from "./showing.js";
import { outcomeOf } from "./states.js";

const OVER = "The time is over; nothing was run. The client can make the call again.";
const LOOKS = 500; // milliseconds between two looks at how the call goes
const TRIES = 2000; // milliseconds until an approval that may not have arrived is sent again
const pause = (milliseconds) => new Promise((resume) => setTimeout(resume, milliseconds));
const place = document.getElementById("confirmation");
const theme = localStorage.getItem("handrail.theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

takeKeyFromAddress();
await takeTicketFromAddress();
const id = location.hash.slice(1);
const path = `/api/confirmations/${encodeURIComponent(id)}`;

async function show() {
  // Its letters are those of ids, because a person may be told to give them to a shell.
  if (!/^[\w-]+$/.test(id)) return tell("No request", "This address names no confirmation request; open the link that the client shows.", "alert");
  if (!key()) return askForKey();
  try {
    ask(await get(path));
  } catch (error) {
    if (error.status !== 401) return tell("Nothing to decide", error.message, "alert");
    forgetKey();
    askForKey("That key is not known here.");
  }
}

function card(sign, heading, about, ...parts) {
  heading.tabIndex = -1;
  const stamp = h("span", { class: "stamp" }, icon(sign));
  place.replaceChildren(
    h("span", { class: "emblem" }, icon("mark")),
    h(
      "section",
      { class: "panel confirm" },
      h("header", null, stamp, h("div", null, heading, about && h("p", { class: "quiet", text: about }))),
      ...parts,
    ),
  );
  return stamp;
}

function tell(title, text, sign) {
  const heading = h("h1", { text: title });
  card(sign, heading, null, h("p", { role: "status", id: "said", text: visible(text) }));
  heading.focus();
}

function askForKey(problem = "") {
  const field = h("input", { type: "password", id: "key", autocomplete: "off", required: true, "aria-describedby": "key-help" });
  const submit = (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    setKey(field.value.trim());
    show();
  };
  const help = h("div", { class: "help", id: "key-help" });
  help.append(
    h("p", null, "Behind ", h("code", { text: "handrail mcp wrap" }), " there is no key. Open this page once more from a terminal, by a link that works once: ", h("code", { text: `handrail mcp open "${location.origin}${location.pathname}#${id}"` })),
    h("p", { text: "At another server: your own key, or an operator's. The key of the client that made the call does not count." }),
    h("p", { text: "It is kept in this tab only." }),
  );
  card(
    "held",
    h("h1", { text: "A call waits for you" }),
    "Give the console's key to see it.",
    h(
      "form",
      { on: { submit } },
      h("div", { class: "field" }, h("label", { for: "key", text: "The console's key" }), field, help),
      problem && h("p", { class: "problem", role: "alert", text: problem }),
      h("button", { type: "submit", class: "button primary", text: "Continue" }),
    ),
  );
  field.focus();
}

function ask(request) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const approve = button("Approve", (click) => decide("approve", click), { kind: "primary", sign: "done", id: "approve" });
  const decline = button("Decline", (click) => decide("decline", click), { sign: "failed", id: "decline" });
  const showing = showingView(request, "preview", [approve, decline]);
  const clock = clockView(request);
  const run = runView(request, { onChange: runs });
  const buttons = h("footer", { id: "buttons" }, h("span", { class: "space" }), decline, approve);
  let isBusy = false;

  async function decide(verdict, click) {
    if (isBusy || !showing.takes(click)) return;
    isBusy = true;
    problem.hidden = true;
    for (const one of [approve, decline]) one.setAttribute("aria-disabled", "true");
    if (verdict === "approve") begin();
    try {
      ended(verdict, await answered(verdict));
    } catch (error) {
      complain(error.message);
    }
  }

  /** What the server says. An approval counts once however often it is sent, so one that may not have arrived is sent again. */
  async function answered(verdict) {
    for (;;) {
      try {
        const envelope = await post(`${path}/${verdict}`, { token: request.token });
        if (envelope.error?.type !== "IN_PROGRESS") return envelope;
      } catch (error) {
        if (error.status !== 0 || !request.run) throw error;
        request.run.state = "lost";
        run.draw();
      }
      await pause(TRIES);
    }
  }

  function begin() {
    request.run = { state: "sent", since: performance.now(), hasStarted: false, progress: [] };
    run.draw();
    look(request.run);
  }

  /** While the call runs, what it tells of itself. */
  async function look(one) {
    while (request.run === one && isBusy) {
      await pause(LOOKS);
      try {
        const { running, told } = await get(`${path}/progress`);
        if (!running || request.run !== one) continue;
        Object.assign(one, { state: "running", hasStarted: true, progress: told });
        run.draw();
      } catch {
        // the answer to the approval says what became of it
      }
    }
  }

  /** There is nothing to decide any more, and something to wait for. */
  function runs(phase) {
    const [words, sign] = RUNNING[phase];
    if (heading.textContent === words) return;
    heading.textContent = words;
    stamp.replaceChildren(icon(sign));
    for (const one of [clock.node, buttons]) one.hidden = true;
    heading.focus();
  }

  /** It was not carried out, and can be decided once more. */
  function complain(text) {
    isBusy = false;
    request.run = null;
    run.node.hidden = true;
    heading.replaceChildren(...question());
    stamp.replaceChildren(icon("held"));
    for (const one of [clock.node, buttons]) one.hidden = false;
    showing.wait();
    problem.textContent = visible(text);
    problem.hidden = false;
  }

  function ended(verdict, envelope) {
    if (envelope.error?.type === "CONFIRMATION_REQUIRED") return leave(show); // it has changed: read it again
    const outcome = outcomeOf(verdict, envelope);
    if (outcome.stays) return complain(outcome.message);
    isBusy = false;
    if (outcome.state === "declined")
      return leave(() => tell("Declined", `${request.tool} was not run. You can close this page.`, "done"));
    if (outcome.state === "approved")
      return leave(() => tell("Approved", `${request.tool} was carried out. You can close this page.`, "done"));
    clearInterval(ticking);
    showing.close();
    const { title, sign } = run.end(outcome);
    heading.textContent = title;
    stamp.replaceChildren(icon(sign));
    for (const one of [clock.node, buttons]) one.hidden = true;
    heading.focus();
  }

  function leave(next) {
    isBusy = false;
    clearInterval(ticking);
    showing.close();
    run.close();
    next();
  }

  function question() {
    return ["Approve ", toolName(request.tool), "?"];
  }

  const heading = h("h1", null, ...question());
  const stamp = card(
    "held",
    heading,
    "A client asks to run it.",
    showing.node,
    h("details", { class: "exact" }, h("summary", null, "The exact arguments"), jsonBlock(request.args, "The exact arguments")),
    clock.node,
    run.node,
    problem,
    buttons,
  );
  heading.focus(); // not a button: a key that was meant for something else must not decide
  const ticking = setInterval(tick, 250);
  function tick() {
    if (isBusy || !clock.update()) return;
    leave(() => tell("Too late", OVER, "alert"));
  }
  tick();
}

show();
