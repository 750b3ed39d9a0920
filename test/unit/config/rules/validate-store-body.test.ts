import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const AT = 'routes.0.webhook.storeBody';

function load(storeBody: unknown, journal: object = {}) {
  const webhook = { keys: [{ name: 'k', secret: { env: 'K' } }], storeBody };
  const route = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000', webhook };
  return parseConfig('f', stringify({ journal, routes: [route] }), new FakeClock());
}

const check = (storeBody: unknown, journal?: object): string[] =>
  load(storeBody, journal).problems.map(({ severity, path, message }) => `${severity} ${path}: ${message}`);

test('stores 8 KiB for an hour if nothing else is set', () => {
  const { config, problems } = load({ redact: ['$.a', '$.b[*].c'] });
  expect(problems).toEqual([]);
  expect(config?.routes[0]?.webhook?.storeBody).toEqual({
    maxBytes: 8_192,
    retention: 3_600_000,
    redact: [
      { text: '$.a', steps: ['a'] },
      { text: '$.b[*].c', steps: ['b', null, 'c'] },
    ],
  });
  expect(load(undefined).config?.routes[0]?.webhook?.storeBody).toBeUndefined();
  expect(config?.journal.maxBodyBytes).toBe(4_194_304);
});

test('accepts bodies without redaction only if the config says so', () => {
  expect(check({ redact: [], maxBytes: '64Ki', retention: '1d' })).toEqual([]);
  expect(check({})).toEqual([
    `error ${AT}.redact: missing: expected the list of JSON paths whose values must not be stored; [] stores bodies as they are`,
  ]);
});

test.each<[object, object, string]>([
  [{ redact: ['card'] }, {}, `${AT}.redact.0: "card" is not a path: a path begins with $; write for example $.card.number`],
  [{ redact: ['$..card'] }, {}, `${AT}.redact.0: "$..card" is not a path: cannot parse "..card"`],
  [{ redact: '$.card' }, {}, `${AT}.redact: expected the list of JSON paths whose values must not be stored`],
  [{ redact: Array(33).fill('$.a') }, {}, `${AT}.redact: expected at most 32 paths`],
  [{ redact: [], maxbytes: 1 }, {}, `${AT}.maxbytes: unknown key "maxbytes"`],
  [{ redact: [], maxBytes: '65Ki' }, {}, `${AT}.maxBytes: a stored body has 1 byte to 64Ki`],
  [{ redact: [], maxBytes: 0 }, {}, `${AT}.maxBytes: a stored body has 1 byte to 64Ki`],
  [
    { redact: [], maxBytes: '8Ki' },
    { maxBodyBytes: '8Ki' },
    `${AT}.maxBytes: such a body does not fit into journal.maxBodyBytes`,
  ],
  [{ redact: [], retention: '25h' }, {}, `${AT}.retention: a body is stored for 1ms to 1d`],
  [{ redact: [], retention: '0s' }, {}, `${AT}.retention: a body is stored for 1ms to 1d`],
  [{ redact: [] }, { size: 0 }, `${AT}: bodies are stored in the journal, which is disabled`],
])('rejects %j', (storeBody, journal, problem) => {
  expect(check(storeBody, journal)).toEqual([expect.stringContaining(`error ${problem}`)]);
});
