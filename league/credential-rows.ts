/** The league's first table: how credentials are read and asked for. */
import { readField } from './raw-client.ts';
import { COLON, GOOD, LONG, POUND, toRequest, toToken, withAuthorization } from './requests.ts';
import { type Observed, type Row, readStatuses } from './row.ts';

/** The realm of everything under /realm: a name that must be quoted. */
export const QUOTED_REALM = 'a"b';

const TOKEN = toToken(COLON.user, COLON.password);
const BAD = `Basic ${toToken(COLON.user, 'wrong')}`;
/** The challenge's realm as RFC 9110 §5.6.4 has a quoted string, with nothing but parameters behind it. */
const QUOTED = /^Basic realm="((?:[^"\\]|\\.)*)"(?:, *[a-z]+=(?:"(?:[^"\\]|\\.)*"|[\w-]+))*$/i;

/** In the order of the report. */
export const CREDENTIAL_ROWS: readonly Row[] = [
  toRow('`basic` / `BASIC`', [`basic ${TOKEN}`, `BASIC ${TOKEN}`], '200', 'RFC 9110 §11.1'),
  toRow('two spaces after the scheme', [`Basic  ${TOKEN}`], '200', 'RFC 9110 §11.4 (1*SP)'),
  toRow('TAB after the scheme', [`Basic\t${TOKEN}`], '401', 'RFC 9110 §11.4 (1*SP)'),
  toRow('no `=` padding', [`Basic ${TOKEN.replace(/=+$/, '')}`], '401', 'policy (RFC 4648 §3.2 requires it of writers)'),
  toRow('`!!` after the token', [`Basic ${TOKEN}!!`], '401', 'RFC 9110 §11.4, RFC 4648 §3.3'),
  toRow('text after the token', [`Basic ${TOKEN} and more`], '401', 'RFC 9110 §11.4'),
  toRow('`*` within the token', [`Basic ${TOKEN.slice(0, 3)}*${TOKEN.slice(3)}`], '401', 'RFC 4648 §3.3'),
  toRow('NUL and junk after the password', [`Basic ${toToken(COLON.user, `${COLON.password}\0junk`)}`], '401', 'RFC 7617 §2'),
  toRow('73rd byte wrong (bcrypt reads 72)', [`Basic ${toToken(LONG.user, LONG.password.replace('X', 'Y'))}`], '401', 'policy'),
  toRow(
    'password beyond ASCII as UTF-8 / as Latin-1',
    [`Basic ${toToken(POUND.user, POUND.password)}`, `Basic ${toToken(POUND.user, POUND.password, 'latin1')}`],
    '200 / 401',
    'RFC 7617 §2.1',
  ),
  toTwoLines('wrong, right', BAD, GOOD),
  toTwoLines('right, wrong', GOOD, BAD),
  toRow('one line `Basic right, Basic wrong`', [`${GOOD}, ${BAD}`], '401', 'RFC 9110 §11.4, §11.6.2'),
  {
    title: 'realm `a"b` in the challenge',
    requests: [toRequest({ line: 'GET /realm HTTP/1.1' })],
    read: ([observed]) => readRealm(observed),
    column: ['escaped'],
    ground: 'RFC 9110 §5.6.4, §11.5',
  },
  {
    title: 'HEAD without credentials',
    requests: [toRequest({ line: 'HEAD /x HTTP/1.1' })],
    read: (observed) => `${readStatuses(observed)}, ${observed[0]?.answer?.rest === '' ? 'no body' : 'body'}`,
    column: ['401, no body'],
    ground: 'RFC 9110 §9.3.2',
  },
];

function toRow(title: string, values: readonly string[], expected: string, ground: string): Row {
  return { title, requests: values.map((value) => withAuthorization(value)), read: readStatuses, column: [expected], ground };
}

function toTwoLines(order: string, ...values: readonly string[]): Row {
  return {
    title: `two Authorization lines: ${order}`,
    requests: [withAuthorization(...values)],
    read: readStatuses,
    column: ['400'],
    ground: 'policy (RFC 9110 §5.3 forbids sending them)',
  };
}

function readRealm(observed: Observed | undefined): string {
  const [challenge] = observed?.answer === undefined ? [] : readField(observed.answer.head, 'www-authenticate');
  if (challenge === undefined) return 'no challenge';
  const realm = QUOTED.exec(challenge)?.[1];
  return realm?.replace(/\\(.)/g, '$1') === QUOTED_REALM ? 'escaped' : 'broken';
}
