// The list of people who enter or leave: searched, filtered and paged for the step that is shown.

const PAGE = 15;

function peopleList(report) {
  const body = document.getElementById("people");
  const status = document.getElementById("people-status");
  const find = document.getElementById("find");
  const direction = document.getElementById("direction");
  const previous = document.getElementById("previous");
  const next = document.getElementById("next");
  const state = { step: report.chosen, page: 0 };

  function matching() {
    const wanted = find.value.trim().toLowerCase();
    const { listed, ranks } = report.steps[state.step].moves;
    return listed
      .map((place, at) => ({ ...report.people[place], now: ranks[at] }))
      .filter((person) => direction.value === "all" || person.leaves === (direction.value === "leave"))
      .filter((person) => person.id.toLowerCase().includes(wanted));
  }

  function row(person) {
    const line = document.createElement("tr");
    const change = person.leaves ? "↘ leaves" : "↗ enters";
    const texts = [change, person.rank.toLocaleString("en"), person.now.toLocaleString("en")];
    if (person.group !== null) texts.unshift(person.group);
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = person.id;
    line.append(name);
    for (const text of texts) line.insertCell().textContent = text;
    line.className = person.leaves ? "leaves" : "enters";
    return line;
  }

  function describe(rows, first) {
    const { moves, words } = report.steps[state.step];
    const searched = find.value.trim() !== "" || direction.value !== "all";
    if (rows.length === 0) {
      if (searched && moves.listed.length > 0) return "Nobody listed at this setting matches.";
      return moves.enter[1] + moves.leave[1] === 0 ? "Nobody enters or leaves at this setting." : `Entering: ${words.enter}. Leaving: ${words.leave}. Nobody is listed here.`;
    }
    const shown = `${first + 1}–${Math.min(first + PAGE, rows.length)} of ${rows.length.toLocaleString("en")}`;
    const more = moves.enter[1] + moves.leave[1] - moves.listed.length;
    return searched || more <= 0 ? shown : `${shown}; ${more.toLocaleString("en")} more move less and are not listed`;
  }

  function draw() {
    const rows = matching();
    state.page = Math.max(0, Math.min(state.page, Math.ceil(rows.length / PAGE) - 1));
    const first = state.page * PAGE;
    body.replaceChildren(...rows.slice(first, first + PAGE).map(row));
    status.textContent = describe(rows, first);
    previous.disabled = state.page === 0;
    next.disabled = first + PAGE >= rows.length;
  }

  const turn = (pages) => () => { state.page += pages; draw(); };
  const restart = () => { state.page = 0; draw(); };
  previous.addEventListener("click", turn(-1));
  next.addEventListener("click", turn(1));
  find.addEventListener("input", restart);
  direction.addEventListener("change", restart);
  return (step) => { state.step = step; restart(); };
}
