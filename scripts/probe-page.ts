/** Writes docs/probe.md from the checks themselves, so that the page cannot say anything else than the report. */
import { CHECKS } from '../src/probe/battery.ts';
import { type Check, GROUPS, type Group } from '../src/probe/check.ts';

const INTRO = `# Probing an endpoint

\`sidegate probe URL\` sends an endpoint of yours genuine deliveries, forged ones, late ones and repeated ones, and reports for each check what
was sent, what was expected, what came, and what the failure costs in practice. The endpoint may be sidegate, another gateway, or an app
that verifies by itself. This page is written from the checks themselves (\`npm run docs\`).

\`\`\`
export BILLING_SECRET=whsec_…
npx sidegate probe http://127.0.0.1:8080/hooks/billing --secret-env BILLING_SECRET
\`\`\`

It exits 0 if every check holds, 1 if one fails, 2 if it was used wrongly or nobody answered. \`--fail-on major\` lets minor failures pass,
\`--format junit --output report.xml\` writes what CI servers show, \`--format json\` what programs read. \`--only\` picks checks, \`--list\` shows them.

**What reaches your app.** Genuine deliveries do, some twenty, as events of the type \`sidegate.probe\` with ids that begin with \`probe_\`. An app that
refuses types it does not know needs \`--body FILE\`, a sample event: each delivery gets an id of its own, in the content too where the sample
has one.

**What may be probed.** Loopback and private addresses. The name is resolved once, every address it leads to is looked at, and nothing else
is connected to. For any other host \`--yes-i-own-this HOST\` must name it. At most 60 requests are sent, 8 of them at once.

**What cannot be seen from outside** is whether an event was handled once: a 2xx for a repeat looks the same either way. Such checks end as
\`look\`, with the ids to look for. With \`--count COMMAND\` the probe asks: the command is run by \`sh\` once all requests are answered, finds the id in
\`$EVENT_ID\`, and prints how often that event was handled:

\`\`\`
npx sidegate probe http://127.0.0.1:3000/hooks --secret-env BILLING_SECRET \\
  --count 'psql -tA -v id="$EVENT_ID" -f count-payments.sql'
\`\`\`

**What does not apply**, such as the timestamp of a scheme that signs none, is shown as \`-\` (\`not_applicable\` in JSON). Where the very first genuine
delivery is not accepted, nothing more is sent: what refuses everything would pass.

A failure is \`critical\` where forged events get in or none arrive, \`major\` where events are lost, handled twice or replayed, \`minor\` where it takes
more to do harm.
`;

const HEAD = '| check | severity | sent | expected | what a failure costs |\n| --- | --- | --- | --- | --- |\n';

/** The page as it should be. */
export function renderProbePage(): string {
  const groups = Object.entries(GROUPS) as [Group, string][];
  return INTRO + groups.map(([group, title]) => `\n## ${title}\n\n${HEAD}${toRows(group)}`).join('');
}

function toRows(group: Group): string {
  return CHECKS.filter((check) => check.group === group)
    .map(toRow)
    .join('');
}

function toRow({ id, severity, sent, expected, cost }: Check): string {
  return `| \`${id}\` | ${severity} | ${sent} | ${expected} | ${cost} |\n`;
}
