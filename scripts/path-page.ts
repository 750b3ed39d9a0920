/** Measures how web frameworks interpret spellings of a path, and writes docs/path-interpretation.md. What they run on is installed by scripts/prepare-test.ts oracles. */
import { writeFileSync } from 'node:fs';
import { FRAMEWORKS, type FrameworkResponse, startFramework } from '../test/support/frameworks/framework.ts';
import { SHOWN_TARGETS } from '../test/support/frameworks/targets.ts';

const PAGE = 'docs/path-interpretation.md';
const INTRO = `# How apps interpret a path

\`/%61dmin\` and \`/admin\` are different bytes, but the same resource (RFC 3986 §6.2.2.2). The gate compares bytes, and so forwards exactly the path
that it matched; most apps decode first, and some ignore letter case. If \`/admin\` asks for a password and \`/\` is open, a request for \`/%61dmin\`
must not pass by \`/\` to the app's \`/admin\`.

So the gate matches every target under each interpretation of this list, and all their combinations:

| interpretation | example | \`trustAppToDistinguish\` |
| --- | --- | --- |
| percent-escapes decoded, any number of times; cut at a decoded \`?\` or \`#\` | \`/%61dmin\`, \`/%2561dmin\` | \`percentEncoding\` |
| letter case ignored, by the rules of Unicode | \`/ADMIN\`, \`/adm%C4%B1n\` | \`letterCase\` |
| compatible characters composed (NFKC) | \`/%EF%BD%81dmin\` | \`unicodeForm\` |
| a slash at the end ignored | \`/account/\` | \`trailingSlash\` |
| an extension of the last segment ignored (Rails, earlier versions of Spring) | \`/admin.json\` | \`extension\` |
| repeated slashes collapsed, a backslash taken for a slash | \`//admin\`, \`/admin\\x\` | \`slashes\` |
| \`;parameters\` dropped, before or after decoding | \`/admin;a=1\` | \`semicolon\` |
| dots and spaces at the end of a segment dropped (Windows) | \`/admin.\` | \`trailingDots\` |

If one of them selects a route whose gates differ from those of the route that the path itself selects, the answer is 400 \`ambiguous_target\`, with or
without credentials. Every other target is forwarded as it came, byte for byte. Where the path itself selects no route, the answer is 404.

- **The gates of two routes are the same** if mode, \`allow\`, \`basic\` and \`clientCertificate\` are equal, and neither has a \`webhook\`: each route
  remembers the ids of its own deliveries, so a webhook route equals itself only. A method that one route takes and the other does not
  is a difference, too. The upstream is none: whoever passes the same gates may use either app's handler.
- **A wider route around** the selected one is not compared: \`/\` never conflicts with a request that the route of \`/admin\` takes.
- **A host is compared as the router does**: without port, letter case and root dots. Where a trusted proxy passes on \`X-Forwarded-Host\`, each of its names must select the same gates as \`Host\` or no route at all. An app that ignores Host is beyond that: \`sidegate check\` notes
  each guarded route that only its Host keeps apart from another.
- Some forms are 400 on every route unless it lists them in \`allowInPath\` (\`;\`, \`%2f\`, \`//\`, …); dot segments, controls and broken escapes are 400 always.
- The rule holds for all methods, WebSocket upgrades, HTTP/2, [forward-auth](forward-auth.md) and routes that observe.

**If the app is known to tell such paths apart**, say so on the guarded route: \`match: { pathPrefix: /admin, trustAppToDistinguish: [letterCase] }\`. Requests that
differ from its path in letter case alone then go by the other route. \`sidegate check\` warns of it, as an update of the app may change it.

**The method** is not in the path: the most specific host and path own all methods, and others get 405. The gate drops \`X-HTTP-Method-Override\`,
\`X-HTTP-Method\` and \`X-Method-Override\` unless the route sets \`forwardMethodOverride\`. Rails, Symfony and Laravel also read \`_method\` from a form or query,
which the gate cannot drop: an open route to such an app should not take POST for a path whose DELETE is guarded by another route.

## Measured

Each app has handlers for \`/admin\` and all below it (**A**), exactly \`/account\` (**C**), exactly \`/hooks/billing\` (**H**), and everything else (o). A digit is the
status of an error or redirect. Bold cells are other spellings that reach a guarded handler. ASP.NET and Rails could not be installed where this was measured.
`;

const LETTERS = { admin: '**A**', account: '**C**', billing: '**H**', open: 'o' } as const;

function toCell({ status, served }: FrameworkResponse): string {
  if (served !== undefined) return LETTERS[served.handler];
  return status === 0 ? 'closed' : String(status);
}

const columns: { readonly title: string; readonly cells: readonly string[] }[] = [];
for (const framework of FRAMEWORKS) {
  if (!framework.isAvailable()) {
    console.log(`${framework.title} is not installed: its column is missing`);
    continue;
  }
  const running = await startFramework(framework);
  const cells: string[] = [];
  for (const target of SHOWN_TARGETS) cells.push(toCell(await running.ask(target)));
  columns.push({ title: `${framework.title} ${running.version}`, cells });
  await running.stop();
}

const rows = SHOWN_TARGETS.map((target, i) => `| \`${target}\` | ${columns.map(({ cells }) => cells[i]).join(' | ')} |`);
const head = `| target | ${columns.map(({ title }) => title).join(' | ')} |\n| --- |${' --- |'.repeat(columns.length)}`;
writeFileSync(
  PAGE,
  `${INTRO}\n${head}\n${rows.join('\n')}\n\nWritten by \`npm run docs:paths\` from what the frameworks answered.\n`,
);
console.log(`${PAGE}: ${columns.length} frameworks`);
