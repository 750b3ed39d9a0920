/** The words of the project's style as data. A reader who knows HTTP, Redis and Kubernetes must not have to guess any of them. */

/** A word or phrase that the prose must not have. */
export interface Term {
  /** A regular expression, between word boundaries and regardless of case; a space matches any white space. */
  readonly find: string;
  /** What to write. */
  readonly instead: string;
  /** A sample of the finding, for the test. */
  readonly bad: string;
  /** A sample that is similar and right, if it is not plain what to write instead. */
  readonly good?: string;
}

const FIELD_TERMS: readonly Term[] = [
  { find: 'mend(?:s|ed|ing)?', instead: 'fix', bad: 'How to mend it.' },
  { find: '(?:come|comes|came|coming) again', instead: 'retry, or repeated', bad: 'The sender comes again.' },
  { find: 'who comes', instead: 'a client', bad: 'The one who comes later waits.' },
  { find: 'whoever|whomever', instead: 'name the actor: any client, authorized callers', bad: 'Deny whoever lacks the token.' },
  { find: 'whatever|wherever', instead: 'any …, everything that …', bad: 'It rejects whatever is ambiguous.' },
  { find: 'left out|leaving out', instead: 'default, if omitted', bad: 'With the key left out, it is 5.' },
  { find: 'rehears(?:al|als|e|es|ed|ing)', instead: 'simulate, simulator', bad: 'A rehearsal of the rotation.' },
  { find: 'stand-ins?|stands? in for', instead: 'fake, simulator', bad: 'A stand-in for the app.' },
  { find: 'gatehouse', instead: 'proxy, pipeline', bad: 'The gatehouse checks it.' },
  { find: 'leads? (?:past|nowhere|around)', instead: 'bypasses, does not resolve', bad: 'This Service leads past the sidecar.' },
  { find: 'overtak(?:e|es|en|ing)|overtook', instead: 'arrive out of order', bad: 'Events may be overtaken.' },
  { find: 'genuine(?:ly)?', instead: 'valid', bad: 'A genuine delivery.' },
  { find: 'verdicts?', instead: 'decision, result', bad: 'The verdict is logged.' },
  { find: 'strangers?', instead: 'untrusted clients', bad: 'Strangers cannot read it.' },
  {
    find: '(?:let|lets|letting) (?:in|through|none in|everybody)',
    instead: 'allow, forward',
    bad: 'Requests that are let through.',
  },
  { find: '(?:turned|turns|turn|turning) away', instead: 'reject', bad: 'The request was turned away.' },
  { find: 'held against', instead: 'compared with', bad: 'It is held against the limit.' },
  { find: '(?<![.])takeovers?(?![=:,])', instead: 'interception mode', bad: 'The takeover of the port.' },
  { find: '(?:take|takes|taken|took) up', instead: 'reload, apply', bad: 'The file is taken up at once.' },
  {
    find: '(?:serve|serves|served|serving) on(?=[.,;:)]|$| (?:while|until|with|after|when|as|and)\\b)',
    instead: 'keep running',
    bad: 'The gate serves on.',
    good: 'The port that it serves on 127.0.0.1.',
  },
  { find: 'whole numbers?', instead: 'integer', bad: 'It must be a whole number.' },
  { find: 'mappings?', instead: 'object', bad: 'It must be a mapping.' },
  { find: 'tells?|told|telling', instead: 'report, log, return, show', bad: 'The log tells why.' },
  { find: 'judg(?:e|es|ed|ing|ement|ements)', instead: 'verify, check, evaluate', bad: 'The rest is judged.' },
  { find: 'believ(?:e|es|ed|ing)', instead: 'trust', bad: 'Its headers are believed.' },
  {
    find: '(?<!certificate )(?<!: )authorit(?:y|ies)',
    instead: 'CA',
    bad: 'An authority signed it.',
    good: 'A certificate authority (CA).',
  },
  { find: 'league', instead: 'conformance comparison', bad: 'The league runs nightly.' },
  { find: '(?:asked|asks?) for by', instead: 'required by', bad: 'The header asked for by the app.' },
  { find: 'readings', instead: 'candidates, interpretations', bad: 'Both readings are tried.' },
  { find: 'for ever', instead: 'forever, permanently', bad: 'It is kept for ever.' },
  { find: 'of (?:its|their|your|one.s) own', instead: 'own, separate, dedicated', bad: 'It has a port of its own.' },
  {
    find: 'stands? (?:before|in front of|behind|beside)',
    instead: 'runs in front of, precedes',
    bad: 'It stands before the app.',
  },
  {
    find: '(?:stand|stands|stood) (?:in(?! front)|on|at|there|under|by)',
    instead: 'be in, replace',
    bad: 'It stands in the place of the name.',
  },
  { find: 'in (?:the|its|their) (?:place|stead) of', instead: 'instead of', bad: 'Used in the place of the name.' },
  { find: 'goes? by|went by', instead: 'use, follow', bad: 'What a selector goes by.' },
  { find: 'sees? to it', instead: 'ensure', bad: 'It sees to it that none runs.' },
  { find: 'is not to be had', instead: 'is not available', bad: 'A narrower right is not to be had.' },
  { find: '(?:of|to|by) (?:yours|theirs)', instead: 'your …, their …', bad: 'A registry of yours.' },
  { find: 'and be it', instead: 'even if', bad: 'Any of them, and be it empty.' },
  { find: 'but for', instead: 'except', bad: 'All but for the first.' },
  { find: 'go(?:es)? without', instead: 'has no, does not have', bad: 'No pod goes without.' },
  { find: 'in the hands of', instead: 'belongs to', bad: 'It is in the hands of the caller.' },
  { find: 'guests?', instead: 'app, client', bad: 'The guest of the gate.' },
  { find: 'doors?|(?<!math\\.)floors?|theatres?', instead: 'entry point, layer, simulator', bad: 'At the door of the gate.' },
  {
    find: 'refus(?:es|ed|ing)(?! (?:to|connections?)\\b)(?<!connection refused)',
    instead: 'reject',
    bad: 'The request was refused.',
    good: 'It refuses to start: connection refused.',
  },
  {
    find: '(?:an|the|its|each|every|first|last|next|app.s|sender.s|server.s|upstream.s) answers?',
    instead: 'response',
    bad: 'The answer has a body.',
    good: 'The server answers with 200.',
  },
  {
    find: '(?:request|response|message|delivery)(?:.s)? content(?! type)',
    instead: 'body',
    bad: 'The request content.',
    good: 'Its content type.',
  },
  { find: '(?:is|are|was|were) to be', instead: 'must be', bad: 'It is to be signed.' },
  { find: 'anew', instead: 'again, new', bad: 'The pod is made anew.' },
  { find: 'all the same', instead: 'still, anyway', bad: 'It is rejected all the same.' },
  { find: 'for good', instead: 'permanently', bad: 'It is closed for good.' },
  { find: 'heeds?|heeded', instead: 'use, follow', bad: 'The header is not heeded.' },
];

const FILLERS: readonly Term[] = [
  {
    find: 'simply|easily|obviously|of course|basically|actually',
    instead: 'nothing: leave the word out',
    bad: 'Simply run it.',
  },
  {
    find: '(?<!not )just(?! (?:before|after|above|below)\\b)',
    instead: 'only, or nothing',
    bad: 'It just works.',
    good: 'It was read just before.',
  },
  { find: 'in order to', instead: 'to', bad: 'In order to sign, run this.' },
  { find: 'due to the fact that', instead: 'because', bad: 'It failed due to the fact that it ended.' },
  {
    find: 'it (?:should|must) be noted that|please note that|note that',
    instead: 'nothing: state the fact',
    bad: 'Note that it ends.',
  },
  { find: 'utili[sz](?:e|es|ed|ing|ation)', instead: 'use', bad: 'It utilizes the cache.' },
];

/** British to American: the spelling of Kubernetes, Prometheus, and the RFCs' header names. */
const SPELLINGS: readonly (readonly [british: string, american: string])[] = [
  ['behaviour', 'behavior'],
  ['colour', 'color'],
  ['favour', 'favor'],
  ['honour', 'honor'],
  ['neighbour', 'neighbor'],
  ['labelled', 'labeled'],
  ['labelling', 'labeling'],
  ['modelled', 'modeled'],
  ['signalled', 'signaled'],
  ['travelled', 'traveled'],
  ['cancelled', 'canceled'],
  ['licence', 'license'],
  ['defence', 'defense'],
  ['centre', 'center'],
  ['metre', 'meter'],
  ['grey', 'gray'],
  ['artefact', 'artifact'],
  ['analyse(?!s)', 'analyze'],
  ['analysing', 'analyzing'],
  ['authoris', 'authoriz'],
  ['canonicalis', 'canonicaliz'],
  ['customis', 'customiz'],
  ['initialis', 'initializ'],
  ['minimis', 'minimiz'],
  ['maximis', 'maximiz'],
  ['normalis', 'normaliz'],
  ['optimis', 'optimiz'],
  ['organis', 'organiz'],
  ['randomis', 'randomiz'],
  ['recognis', 'recogniz'],
  ['serialis', 'serializ'],
  ['summaris', 'summariz'],
  ['synchronis', 'synchroniz'],
];

export const TERMS: readonly Term[] = [
  ...FIELD_TERMS,
  ...FILLERS,
  ...SPELLINGS.map(([british, american]) => ({
    find: `(?:re|de|un)?${british}\\w*`,
    instead: `${american}…`,
    bad: `A ${british.replace(/\(.*\)/, '')} here.`,
  })),
];

/** Names that headings capitalize. Words with a digit, a dot or a second capital need no entry. */
export const PROPER_NAMES: ReadonlySet<string> = new Set(
  `Sidegate Kubernetes Redis Valkey Stripe Slack Node Docker Compose Caddy Debian Ubuntu Linux Helm Argo Flux Prometheus Grafana Google
  Amazon Azure Microsoft Cloudflare Standard Webhooks Basic Bearer Authorization Host Service Services Secret Secrets ConfigMap Pod
  Deployment Events Latin Unix Apache Nginx Traefik Express Django Fastify Ruby Python Java Go Rust Alertmanager Kustomize Istio Linkerd
  December November I JSON Web Token Tokens PayPal Plaid Apple Pub Sub`.split(/\s+/),
);
