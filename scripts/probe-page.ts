/** Writes docs/probe.md from the checks themselves, so that the page cannot say anything else than the report. */

import { type Check, GROUPS, type Group } from '../src/diagnostics/probe/check.ts';
import { CHECKS } from '../src/diagnostics/probe/run-checks.ts';

const INTRO = `# Probe an endpoint for weaknesses

\`sidegate probe URL\` sends valid, forged, expired and replayed deliveries to one of your endpoints. For each check it reports what it sent, what it expected, the actual result, and the impact of a failure. The endpoint can be sidegate, another
gateway, or an app that verifies signatures itself. This page is generated from the checks (\`npm run docs\`).

\`\`\`
export BILLING_SECRET=whsec_…
sidegate probe http://127.0.0.1:8080/hooks/billing --secret-env BILLING_SECRET
\`\`\`

It exits with 0 if every check passes, with 1 if one fails, and with 2 if it was used incorrectly or nothing responded. \`--fail-on major\` ignores minor failures, \`--format junit --output report.xml\` writes a report for CI servers,
\`--format json\` one for programs. \`--only\` selects checks, \`--list\` shows them.

**What reaches your app.** About twenty valid deliveries, as events of the type \`sidegate.probe\` with IDs that begin with \`probe_\`. If the app rejects unknown types, give a sample event with \`--body FILE\`: each delivery gets its own ID,
also in the body if the sample has one there.

**What can be probed.** Loopback and private addresses. The command resolves the name once, checks every address, and connects to nothing else. Any other host must be named by \`--yes-i-own-this HOST\`. It sends at most 60 requests, 8 of them
in parallel.

**What cannot be seen from outside** is whether an event was handled once, because a 2xx for a repeat looks the same either way. Such checks end with \`see\` and list the IDs to look for. With \`--count COMMAND\` the probe finds out: after all
responses it runs the command with \`sh\`, with the ID in \`$EVENT_ID\`, and the command prints how often that event was handled:

\`\`\`
sidegate probe http://127.0.0.1:3000/hooks --secret-env BILLING_SECRET \\
  --count 'psql -tA -v id="$EVENT_ID" -f count-payments.sql'
\`\`\`

**Checks that do not apply**, such as the timestamp for a scheme that signs none, are shown as \`-\` (\`not_applicable\` in JSON). If the first valid delivery is not accepted, the probe stops, because an endpoint that rejects everything would pass.

A failure is \`critical\` if forged events are accepted or no events arrive, \`major\` if events are lost, handled twice or replayed, and \`minor\` if it takes more to cause harm.
`;

const HEAD = '| check | severity | sent | expected | impact of a failure |\n| --- | --- | --- | --- | --- |\n';

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

function toRow({ id, severity, sent, expected, impact }: Check): string {
  return `| \`${id}\` | ${severity} | ${sent} | ${expected} | ${impact} |\n`;
}
