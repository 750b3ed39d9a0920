/** What `sidegate scheme` prints beside the fields, which test/unit/config/load/custom-scheme.test.ts checks for every preset. */
import { describe, expect, test } from 'vitest';
import { printScheme } from '../../../src/cli/scheme.ts';
import { PRESETS } from '../../../src/verify/presets/catalogue.ts';
import { recordIo } from '../../support/io.ts';

function print(name?: string): string {
  const { io, stdout } = recordIo();
  expect(printScheme(name, { custom: true }, io)).toBe(0);
  return stdout();
}

describe('sidegate scheme', () => {
  test('prints the page of a sender: its key, a config, what is verified, its behavior and a test', () => {
    const { io, stdout } = recordIo();
    expect(printScheme('stripe', {}, io)).toBe(0);
    expect(stdout()).toMatch(
      /^# Stripe\n[^]*the endpoint's signing secret[^]*scheme: stripe\n[^]*`Stripe-Signature`[^]*any 2xx[^]*sidegate send/,
    );
    expect(stdout()).toContain('[guide](docs/how-to/stripe.md)');
  });

  test('has no page of a preset that many senders use', () => {
    expect(() => printScheme('bearer', {}, recordIo().io)).toThrow(
      'bearer has no page, because no single sender uses it: add --custom',
    );
  });

  test('lists the names of all presets', () => {
    const { io, stdout } = recordIo();
    printScheme(undefined, {}, io);
    expect(stdout().trimEnd().split('\n')).toEqual(PRESETS.map(({ name }) => name));
  });
});

describe('sidegate scheme --custom', () => {
  test('prints a section of the config, with the sender, its key and what is lost', () => {
    expect(print('slack')).toBe(`# The preset slack: Slack, https://docs.slack.dev/authentication/verifying-requests-from-slack
# The key is the app's signing secret (Basic Information); not the verification token.
webhook:
  scheme: custom
  custom:
    signature:
      header: X-Slack-Signature
      encoding: hex
      forms:
        - prefix: v0=
          algorithm: hmac-sha256
    signed:
      - text: v0
      - timestamp
      - body
    separator: ":"
    timestamp:
      header: X-Slack-Request-Timestamp
      unit: s
    id:
      json: $.event_id
    secret:
      encoding: utf8
  tolerance: 5m
  contentTypes:
    - application/json
    - application/x-www-form-urlencoded
  handshake:
    type: slack
  keys:
    - name: current
      secret:
        env: SLACK_SECRET
`);
  });

  test.each([
    ['svix', 'the alternative headers Webhook-Id, Webhook-Timestamp, Webhook-Signature; its warnings about unusual secrets'],
    [
      'standard-webhooks',
      'the comparison with Svix-Id, Svix-Timestamp, Svix-Signature, which must have the same values; its warnings about unusual secrets',
    ],
    ['stripe', 'its warnings about unusual secrets'],
    ['discord', 'the response statuses that this sender needs'],
  ])('says in one line what a custom scheme does not have: %s', (name, lost) => {
    expect(print(name)).toContain(`\n# A custom scheme does not have ${lost}.\nwebhook:`);
  });

  test('says that a token needs an ID', () => {
    for (const name of ['bearer', 'api-key'])
      expect(print(name)).toContain('# Say where the ID is, such as id: { json: $.id }, or set dedup: off.');
  });

  test('lists all presets that it can print, and reports why it cannot print the others', () => {
    const known = print().trimEnd().split('\n');
    const { io } = recordIo();
    for (const [name, why] of [
      ['aws-sns', 'the signature is in the body, and its certificate at a URL'],
      ['microsoft-graph', 'the tokens are in the body'],
      ['unsigned', 'nothing is signed'],
    ] as const) {
      expect(known).not.toContain(name);
      expect(() => printScheme(name, { custom: true }, io)).toThrow(`${name} cannot be written as a custom scheme: ${why}`);
    }
    expect(known).toHaveLength(PRESETS.length - 3);
    expect(() => printScheme('githb', {}, io)).toThrow(/unknown scheme. Did you mean github\?/);
  });
});
