import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { useFolder } from '../support/fixtures.ts';
import { GO_PARTS, PYTHON_PARTS, startGo, startPython, toForeignOracle } from '../support/oracles/foreign.ts';
import { readGithubExamples } from '../support/oracles/github-examples.ts';
import { listMutations } from '../support/oracles/mutations.ts';
import type { Oracle } from '../support/oracles/oracle.ts';
import { type SnsOracle, startSns } from '../support/oracles/sns.ts';
import { oracles, toTitle } from '../support/oracles.ts';

const python = startPython();
const go = startGo();
const languages = [
  { language: 'Python', speaker: python, parts: PYTHON_PARTS },
  { language: 'Go', speaker: go, parts: GO_PARTS },
];
/** By preset and form; the senders that no library and no document but the one they were written from can prove. */
const UNPROVED = ['gitlab', 'microsoft-graph'];

afterAll(() => {
  python?.stop();
  go?.stop();
});

async function expectVerdicts(oracle: Oracle): Promise<void> {
  const delivery = oracle.sample(Date.now());
  const signed = await oracle.sign(delivery);
  expect(await oracle.verify?.(signed, oracle.secret)).toBe(true);
  expect(await oracle.verify?.(signed, oracle.otherSecret)).toBe(false);
  for (const { name, isCovered, signed: changed } of listMutations(oracle, delivery, signed))
    expect({ [name]: await oracle.verify?.(changed, oracle.secret) }).toEqual({ [name]: !isCovered });
}

const titled = oracles.filter(({ verify }) => verify).map((oracle) => ({ oracle, title: toTitle(oracle) }));

describe("a sender's library in JavaScript", () => {
  test.each(titled)('accepts signed deliveries, and rejects modified ones: $title', ({ oracle }) => expectVerdicts(oracle));
});

describe.each(languages)('the libraries in $language', ({ language, speaker, parts }) => {
  const cases = parts.flatMap((part) => oracles.filter(({ preset }) => preset === part.preset).map((base) => ({ base, part })));

  test.skipIf(!speaker)('exist for each of their senders', () => {
    expect(cases.map(({ part }) => part.preset)).toEqual(expect.arrayContaining(parts.map(({ preset }) => preset)));
  });

  const name = ({ base }: (typeof cases)[number]): string => `${base.preset}${base.form === undefined ? '' : ` (${base.form})`}`;
  const toTable = (table: typeof cases): { one: (typeof cases)[number]; title: string }[] =>
    table.map((one) => ({ one, title: name(one) }));

  test.skipIf(!speaker).each(toTable(cases.filter(({ part }) => part.signs)))(
    `sign $title like the signer in this repository (skipped without ${language})`,
    async ({ one: { base, part } }) => {
      if (!speaker) return;
      const delivery = base.sample(Date.now());
      expect((await toForeignOracle(base, speaker, part).sign(delivery)).headers).toEqual((await base.sign(delivery)).headers);
    },
  );

  test.skipIf(!speaker).each(toTable(cases.filter(({ part }) => part.verifies)))(
    `accept $title, and reject modified deliveries (skipped without ${language})`,
    async ({ one: { base, part } }) => {
      if (speaker) await expectVerdicts({ ...toForeignOracle(base, speaker, part), sign: base.sign });
    },
  );
});

describe('every sender', () => {
  test('is confirmed by a library or a second signer, except those that sign nothing', () => {
    const foreign = new Set([...PYTHON_PARTS, ...GO_PARTS].map(({ preset }) => preset));
    const unproved = oracles.filter(({ preset, verify }) => !verify && !foreign.has(preset)).map(({ preset }) => preset);
    expect(unproved).toEqual(UNPROVED);
    for (const { preset, covers } of oracles) if (UNPROVED.includes(preset)) expect(Object.values(covers)).not.toContain(true);
  });
});

describe("GitHub's real payloads", () => {
  const examples = readGithubExamples();
  const github = oracles.find(({ preset }) => preset === 'github');

  test('are 329 of 58 events', () => {
    expect(examples).toHaveLength(329);
    expect(new Set(examples.map(({ event }) => event)).size).toBe(58);
  });

  test.each(['JavaScript', ...(go ? ['Go'] : [])])('are all accepted by the library in %s', async (language) => {
    const [part] = GO_PARTS.filter(({ preset }) => preset === 'github');
    if (!github || !part) throw new Error('no oracle of GitHub');
    const verifier = language === 'Go' && go ? toForeignOracle(github, go, part) : github;
    for (const { event, body } of examples) {
      const signed = await github.sign({ ...github.sample(0), body });
      expect({ event, ok: await verifier.verify?.(signed, github.secret) }).toEqual({ event, ok: true });
    }
  });
});

describe('AWS SNS', () => {
  const folder = useFolder();
  let sns: SnsOracle;

  beforeAll(async () => {
    sns = await startSns(folder);
  });
  afterAll(() => sns.stop());

  test.each(['1', '2'] as const)(
    "AWS's validator accepts version %s, and rejects a change of each signed field",
    async (version) => {
      const delivery = sns.sample(Date.now());
      const message = sns.signMessage(JSON.parse(delivery.body.toString()) as Record<string, string>, version);
      const verify = (content: object): unknown =>
        sns.verify?.({ ...delivery, headers: {}, body: Buffer.from(JSON.stringify(content)) }, sns.secret);
      expect(await verify(message)).toBe(true);
      for (const name of ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn'])
        expect({ name, ok: await verify({ ...message, [name]: `${message[name]}A` }) }).toEqual({ name, ok: false });
      expect(await verify({ ...message, Unsigned: 'x' })).toBe(true);
    },
  );

  test('a confirmation also signs its token and its URL', async () => {
    const { Subject: _subject, ...notification } = JSON.parse(sns.sample(Date.now()).body.toString()) as Record<string, string>;
    const confirmation = {
      ...notification,
      Type: 'SubscriptionConfirmation',
      Token: 't',
      SubscribeURL: 'https://sns.us-west-2.amazonaws.com/',
    };
    const message = sns.signMessage(confirmation, '2');
    const verify = (content: object): unknown =>
      sns.verify?.({ method: 'POST', url: '/', headers: {}, body: Buffer.from(JSON.stringify(content)) }, sns.secret);
    expect(await verify(message)).toBe(true);
    expect(await verify({ ...message, SubscribeURL: 'https://sns.us-west-2.amazonaws.com/?b' })).toBe(false);
    expect(await verify({ ...message, Token: 'u' })).toBe(false);
  });
});
