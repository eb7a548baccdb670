// Lets promptfoo's Crescendo attack with a served attacker: translates the JSON that it asks for.
export default class Champion {
  constructor({ config }) {
    this.config = config;
  }
  id() {
    return "champion";
  }
  async callApi(text, { prompt }) {
    // Crescendo's judges ask here, too: neither refusal nor success, so that all turns are led.
    if (prompt.label !== "history") return { output: { value: false, metadata: 0, rationale: "" } };
    const [first, ...rounds] = JSON.parse(text).slice(1);
    const goal = first.content.match(/objective: "([^]*)"\.\n/);
    if (!goal) return { error: "promptfoo must name the objective as 0.123.1 does" };
    const messages = [{ role: "user", content: goal[1] }];
    rounds.forEach(({ content }, at) => {
      const reply = content.match(/following response: ([^]*)\n\n-{32}/);
      if (!reply) return; // a probe, or one that was refused and taken back
      const probe = JSON.parse(rounds[at - 1].content).generatedQuestion;
      messages.push({ role: "assistant", content: probe }, { role: "user", content: reply[1] });
    });
    const { url, ...sampling } = this.config;
    const answer = await fetch(`${url}/chat/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model: "champion", messages, ...sampling }),
    });
    if (!answer.ok) return { error: await answer.text() };
    const generatedQuestion = (await answer.json()).choices[0].message.content;
    return { output: { generatedQuestion, rationaleBehindJailbreak: "", lastResponseSummary: "" } };
  }
}
