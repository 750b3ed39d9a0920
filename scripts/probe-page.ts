/** Writes docs/probe.md from the checks, so that the page and the report always agree. */

import { type Check, GROUPS, type Group } from '../src/diagnostics/probe/check.ts';
import { CHECKS } from '../src/diagnostics/probe/run-checks.ts';

const INTRO = `# Probe an endpoint for weaknesses

\`sidegate probe URL\` sends valid, forged, expired and replayed deliveries to one of your endpoints. The endpoint can be sidegate, another gateway, or an app that verifies signatures itself. For each check the probe reports what it
sent, the expected and the actual result, and the impact of a failure.

\`\`\`
export BILLING_SECRET=whsec_…
sidegate probe http://127.0.0.1:8080/hooks/billing --secret-env BILLING_SECRET
\`\`\`

It exits with 0 if every check passes, with 1 if one fails, and with 2 if it was used incorrectly or the endpoint did not respond. \`--fail-on major\` ignores minor failures. \`--format junit --output report.xml\` writes a report for CI
servers, \`--format json\` a report for programs. \`--only\` selects checks, and \`--list\` lists them.

**Effect on your app.** The app receives about twenty valid deliveries: events of the type \`sidegate.probe\` with IDs that begin with \`probe_\`. If it rejects unknown types, pass a sample event with \`--body FILE\`. Each delivery gets
a new ID, also in the body if the sample contains one.

**Allowed targets.** By default the probe connects only to loopback and private addresses. To probe another host, confirm its name with \`--yes-i-own-this HOST\`. The probe resolves the name once, checks every address, and connects
only to these. It sends at most 60 requests, at most 8 of them in parallel.

**Deduplication.** The response does not show whether a repeated event was handled again. Such checks therefore end with \`see\` and list the IDs to look for in your app. With \`--count COMMAND\` the probe checks this itself: after all
responses it runs the command with \`sh\` and the ID in \`$EVENT_ID\`, and the command must print how often the app handled that event:

\`\`\`
sidegate probe http://127.0.0.1:3000/hooks --secret-env BILLING_SECRET \\
  --count 'psql -tA -v id="$EVENT_ID" -f count-payments.sql'
\`\`\`

**Results.** Checks that do not apply, such as those of the timestamp for a scheme without one, are shown as \`-\` (\`not_applicable\` in JSON). If the endpoint does not accept the first valid delivery, the probe stops: an endpoint that
rejects everything would pass most checks.

A failure is \`critical\` if forged events are accepted or no events arrive, \`major\` if events are lost, handled twice or replayed, and \`minor\` if harm needs further conditions. The tables are generated from the checks (\`npm run docs\`).
`;

const HEAD = '| check | severity | sent | expected | impact of a failure |\n| --- | --- | --- | --- | --- |\n';

/** Renders the page. */
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
