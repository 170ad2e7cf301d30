// What htmx does not do: Ctrl+Enter, words that may stand next, names that are clicked into the question, and
// buttons that copy a text, or mark it where the browser does not let them copy.
"use strict";
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const told = button.parentNode.querySelector("[data-copied]");
  try {
    await navigator.clipboard.writeText(source.textContent);
    told.textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(source);
    told.textContent = "Press Ctrl+C.";
  }
});
(() => {
  const box = document.getElementById("question");
  if (!box) return;
  const form = box.form;
  const list = document.getElementById("offers");
  const proof = form.elements.namedItem("proof").value;
  let offered = [];
  let begun = "";
  let marked = -1;
  let asked = 0;
  let timer = 0;
  let waiting = false;
  let again = false;

  const close = () => {
    asked += 1;
    again = false;
    offered = [];
    marked = -1;
    list.hidden = true;
    box.removeAttribute("aria-activedescendant");
  };

  const mark = (at) => {
    marked = at;
    [...list.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === at)));
    if (at < 0) box.removeAttribute("aria-activedescendant");
    else {
      box.setAttribute("aria-activedescendant", list.children[at].id);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  };

  // Where the word that is being written begins, measured on a copy of the text that nobody sees.
  const place = () => {
    const copy = document.createElement("div");
    const here = document.createElement("span");
    copy.className = "mirror";
    copy.textContent = box.value.slice(0, box.selectionStart - begun.length);
    here.textContent = box.value.slice(box.selectionStart - begun.length) || ".";
    copy.append(here);
    copy.style.width = `${box.clientWidth}px`;
    box.parentNode.append(copy);
    const { offsetLeft: left, offsetTop: top } = here;
    copy.remove();
    const room = Math.max(0, box.clientWidth - list.offsetWidth);
    list.style.left = `${Math.min(left, room)}px`;
    list.style.top = `${Math.min(top - box.scrollTop + 26, box.offsetHeight)}px`;
  };

  const insert = (word, from) => {
    box.setRangeText(word, from, box.selectionEnd, "end");
    box.dispatchEvent(new Event("input", { bubbles: true }));
    close();
    box.focus();
  };

  const take = (at) => insert(offered[at] + " ", box.selectionStart - begun.length);

  const show = (found) => {
    begun = found.begun;
    offered = found.words;
    list.replaceChildren(
      ...offered.map((word, at) => {
        const item = document.createElement("li");
        item.id = `offer-${at}`;
        item.setAttribute("role", "option");
        item.textContent = word;
        item.addEventListener("mousedown", (event) => {
          event.preventDefault();
          take(at);
        });
        return item;
      })
    );
    list.hidden = offered.length === 0;
    if (offered.length > 0) place();
    mark(-1);
  };

  // One request at a time: what is typed meanwhile is asked once that has been answered.
  const offer = async () => {
    const number = (asked += 1);
    again = waiting;
    if (waiting) return;
    const before = box.value.slice(0, box.selectionStart);
    if (!/[\w".]$/.test(before)) return close();
    const body = new URLSearchParams({ proof, text: before });
    waiting = true;
    try {
      const response = await fetch("/complete", { method: "POST", body, headers: { "HX-Request": "true" } });
      if (number === asked && response.ok) show(await response.json());
    } catch {
      close();
    } finally {
      waiting = false;
    }
    if (again) offer();
  };

  box.addEventListener("input", (event) => {
    clearTimeout(timer);
    if (event.isTrusted) timer = setTimeout(offer, 120);
  });
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      clearTimeout(timer);
      close();
      form.requestSubmit(document.getElementById("run"));
    } else if (list.hidden) {
      return;
    } else if (event.key === "Escape") {
      event.preventDefault();
      close();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      mark((marked + step + offered.length + (marked < 0 && step < 0 ? 1 : 0)) % offered.length);
    } else if (event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      take(Math.max(0, marked));
    } else if (event.key === "Enter" && marked >= 0) {
      event.preventDefault();
      take(marked);
    }
  });

  const spelled = (name) => (/^[A-Za-z_][A-Za-z_0-9]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-word]");
    if (button) insert(spelled(button.dataset.word), box.selectionStart);
  });
})();
