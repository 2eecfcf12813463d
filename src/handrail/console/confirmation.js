// One request for a confirmation, at the address that a client of MCP shows: `/console/confirmation.html#ID`. The key is the
// console's, from this tab; it must be another than the key of the client that made the call.
import { forgetKey, get, key, post, setKey, takeKeyFromAddress, takeTicketFromAddress } from "./api.js";
import { button, h, icon, jsonBlock, toolName } from "./dom.js";
import { clockView } from "./clock-view.js";
import { visible } from "./hidden-characters.js";
import { showingView } from "./showing.js";

const OVER = "The time is over; nothing was run. The client can make the call again.";
const place = document.getElementById("confirmation");
const theme = localStorage.getItem("handrail.theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

takeKeyFromAddress();
await takeTicketFromAddress();
const id = location.hash.slice(1);
const path = `/api/confirmations/${encodeURIComponent(id)}`;

async function show() {
  if (!id) return tell("No request", "This address names no confirmation request; open the link that the client shows.", "alert");
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
  place.replaceChildren(
    h("span", { class: "emblem" }, icon("mark")),
    h(
      "section",
      { class: "panel confirm" },
      h("header", null, h("span", { class: "stamp" }, icon(sign)), h("div", null, heading, about && h("p", { class: "quiet", text: about }))),
      ...parts,
    ),
  );
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
    h("p", null, "Behind ", h("code", { text: "handrail mcp wrap" }), " there is no key. Open this page once more from a terminal, by a link that works once: ", h("code", { text: `handrail mcp open "${location.href}"` })),
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
  let isBusy = false;

  async function decide(verdict, click) {
    if (isBusy || !showing.takes(click)) return;
    isBusy = true;
    problem.hidden = true;
    for (const one of [approve, decline]) one.setAttribute("aria-disabled", "true");
    try {
      ended(verdict, await post(`${path}/${verdict}`, { token: request.token }));
    } catch (error) {
      isBusy = false;
      showing.wait();
      problem.textContent = visible(error.message);
      problem.hidden = false;
    }
  }

  function ended(verdict, envelope) {
    clearInterval(ticking);
    showing.close();
    if (envelope.error?.type === "CONFIRMATION_REQUIRED") return show(); // it has changed: read it again
    if (envelope.ok) return tell("Approved", `${request.tool} was carried out. You can close this page.`, "done");
    if (verdict === "decline") return tell("Declined", `${request.tool} was not run. You can close this page.`, "done");
    tell("It could not be carried out", envelope.error.message, "failed");
  }

  const heading = h("h1", null, "Approve ", toolName(request.tool), "?");
  card(
    "held",
    heading,
    "A client asks to run it.",
    showing.node,
    h("details", { class: "exact" }, h("summary", null, "The exact arguments"), jsonBlock(request.args, "The exact arguments")),
    clock.node,
    problem,
    h("footer", { id: "buttons" }, h("span", { class: "space" }), decline, approve),
  );
  heading.focus(); // not a button: a key that was meant for something else must not decide
  const ticking = setInterval(tick, 250);
  function tick() {
    if (isBusy || !clock.update()) return;
    clearInterval(ticking);
    showing.close();
    tell("Too late", OVER, "alert");
  }
  tick();
}

show();
