/** Amazon SNS before a real gate, with a real https server in the place of its own. */
import { execFileSync } from 'node:child_process';
import { createPrivateKey, randomUUID, sign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { makeAuthority, readPair } from '../support/certificates.ts';
import { type Answer, send } from '../support/client.ts';
import { useApp, useFolder, useServer } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';

const HOST = 'sns.eu-central-1.amazonaws.com';
const TOPIC = 'arn:aws:sns:eu-central-1:123456789012:orders';
const CERTIFICATE = `https://${HOST}/SimpleNotificationService-0123456789abcdef.pem`;

type Message = Record<string, string>;

const app = useApp();
const folder = useFolder();
const authority = makeAuthority(folder, 'amazon');
const ca = readFileSync(authority.ca);
const [keyFile, certFile] = [join(folder, 'signing.key'), join(folder, 'signing.crt')];
const SUBJECT = ['-subj', '/CN=sns.amazonaws.com'];
const REQUEST = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', ...SUBJECT, '-keyout', keyFile, '-out', certFile];
execFileSync('openssl', REQUEST, { stdio: 'ignore' });
const key = createPrivateKey(readFileSync(keyFile));
const certificate = readFileSync(certFile);

let requests: string[] = [];
let answerWith = 200;
const server = createServer(readPair(authority.issue('sns', `DNS:${HOST}`)), (request, response) => {
  requests.push(request.url ?? '');
  response.statusCode = answerWith;
  response.end(request.url?.endsWith('.pem') === true ? certificate : '<ConfirmSubscriptionResponse/>');
});
const sns = useServer(server);
beforeEach(() => {
  requests = [];
  answerWith = 200;
});

function start(options: Sections = {}): Promise<TestGate> {
  const webhook = { scheme: 'aws-sns', keys: [], sns: { topics: [TOPIC], ...options } };
  const connectOverride = { ca, reach: () => ({ host: '127.0.0.1', port: sns.port }) };
  return startGate({ routes: [toRoute(app.port, { webhook })] }, undefined, {}, {}, connectOverride);
}

/** Signed as Amazon's documentation has it; `fields` win over what would be genuine. */
function toMessage(fields: Message = {}, version: '1' | '2' = '2'): Message {
  const message: Message = {
    Type: 'Notification',
    MessageId: randomUUID(),
    TopicArn: TOPIC,
    Message: '{"order":1}',
    Timestamp: new Date().toISOString(),
    SignatureVersion: version,
    SigningCertURL: CERTIFICATE,
    ...fields,
  };
  const names =
    message['Type'] === 'Notification'
      ? ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type']
      : ['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'];
  const text = names
    .filter((name) => name in message)
    .map((name) => `${name}\n${message[name]}\n`)
    .join('');
  return { ...message, Signature: sign(version === '1' ? 'sha1' : 'sha256', Buffer.from(text), key).toString('base64') };
}

function toConfirmation(fields: Message = {}): Message {
  const query = `Action=ConfirmSubscription&TopicArn=${encodeURIComponent(TOPIC)}&Token=abc`;
  return toMessage({ Type: 'SubscriptionConfirmation', Token: 'abc', SubscribeURL: `https://${HOST}/?${query}`, ...fields });
}

function post(gate: TestGate, message: Message | string): Promise<Answer> {
  const body = typeof message === 'string' ? message : JSON.stringify(message);
  return send(gate.port, { path: '/hooks/billing', headers: { 'Content-Type': 'text/plain; charset=UTF-8' }, body });
}

describe('a notification', () => {
  test.each([
    ['x-amz-sns-message-type', 'Notification', 'SubscriptionConfirmation'],
    ['x-amz-sns-topic-arn', TOPIC, `${TOPIC}-other`],
    ['x-amz-sns-message-id', undefined, 'another'],
  ])('is rejected if the unsigned field %s contradicts it', async (name, same, other) => {
    const gate = await start();
    const message = toMessage({ Subject: 'a' });
    const sendWith = (value: string | string[]): Promise<Answer> => {
      const headers = { 'Content-Type': 'text/plain; charset=UTF-8', [name]: value };
      return send(gate.port, { path: '/hooks/billing', headers, body: JSON.stringify(message) });
    };
    const genuine = same ?? String(message['MessageId']);
    expect((await sendWith(other)).code).toBe('malformed_signature');
    expect((await sendWith([genuine, other])).code).toBe('malformed_signature');
    expect(app.received).toHaveLength(0);
    expect((await sendWith(genuine)).status).toBe(200);
    expect(app.received).toHaveLength(1);
    await gate.stop();
  });

  test.each(['1', '2'] as const)(
    'of signature version %s reaches the app once, and the certificate is fetched once',
    async (version) => {
      const gate = await start();
      for (let i = 0; i < 3; i++) expect((await post(gate, toMessage({ Subject: 'a' }, version))).status).toBe(200);
      const message = toMessage({}, version);
      await post(gate, message);
      expect((await post(gate, message)).code).toBe('duplicate');
      expect(app.received).toHaveLength(4);
      expect(app.received[0]?.headers['sidegate-key']).toBe(TOPIC);
      expect(requests).toEqual(['/SimpleNotificationService-0123456789abcdef.pem']);
      await gate.stop();
    },
  );

  test('whose unsigned part was changed before is no duplicate, and a retry with another signature is one', async () => {
    const gate = await start();
    const attributes = (value: string): object => ({ MessageAttributes: { kind: { Type: 'String', Value: value } } });
    const toUnsubscribe = (id: string): Message => ({
      UnsubscribeURL: `https://${HOST}/?Action=Unsubscribe&SubscriptionArn=${id}`,
    });
    for (const [genuine, forged] of [
      [attributes('paid'), attributes('refunded')],
      [attributes('paid'), {}],
      [{}, { Extra: 1 }],
      [toUnsubscribe('a'), toUnsubscribe('b')],
      [{}, { Subject: null }],
    ] as const) {
      const message = toMessage();
      const [changed, sent] = [
        { ...message, ...forged },
        { ...message, ...genuine },
      ].map((each) => JSON.stringify(each));
      expect((await post(gate, changed ?? '')).text).toBe('handled');
      expect(await post(gate, sent ?? '')).toMatchObject({ status: 503, code: 'event_conflict' });
    }
    const message = toMessage(toUnsubscribe('a'));
    expect((await post(gate, message)).text).toBe('handled');
    const { SignatureVersion: _, ...fields } = message;
    expect((await post(gate, { ...toMessage(fields, '1'), ...toUnsubscribe('a') })).code).toBe('duplicate');
    await gate.stop();
  });

  test.each<[string, () => Message | string, string]>([
    ['with a changed message', () => ({ ...toMessage(), Message: 'x' }), 'signature_mismatch'],
    ['with a subject that was added', () => ({ ...toMessage(), Subject: 'x' }), 'signature_mismatch'],
    ['with another id', () => ({ ...toMessage(), MessageId: randomUUID() }), 'signature_mismatch'],
    ['of another topic, although valid', () => toMessage({ TopicArn: `${TOPIC}2` }), 'signature_mismatch'],
    [
      'of a day ago',
      () => toMessage({ Timestamp: new Date(Date.now() - 86_400_000).toISOString() }),
      'timestamp_outside_tolerance',
    ],
    ['whose subject has a line end', () => toMessage({ Subject: 'world\nMessageId\nreal' }), 'malformed_signature'],
    ['that is delivered raw', () => '{"order":1}', 'malformed_signature'],
    ['that is no JSON', () => 'x', 'malformed_signature'],
    [
      'with a second message before the one that is signed',
      () => JSON.stringify(toMessage()).replace('{', '{"Message":"forged",'),
      'malformed_signature',
    ],
    [
      'with a second message under an escaped name',
      () => JSON.stringify(toMessage()).replace('{', '{"\\u004dessage":"forged",'),
      'malformed_signature',
    ],
    [
      'with a second message in other case',
      () => JSON.stringify(toMessage()).replace('{', '{"message":"forged",'),
      'malformed_signature',
    ],
    ['without a signature', () => ({ ...toMessage(), Signature: '' }), 'malformed_signature'],
    ['of an unknown signature version', () => ({ ...toMessage(), SignatureVersion: '3' }), 'malformed_signature'],
  ])('%s is rejected', async (_title, make, code) => {
    const gate = await start();
    expect((await post(gate, make())).code).toBe(code);
    expect(app.received).toEqual([]);
    await gate.stop();
  });

  test.each([
    'http://sns.eu-central-1.amazonaws.com/a.pem',
    'https://sns.us-east-1.amazonaws.com/a.pem',
    'https://sns.eu-central-1.amazonaws.com.evil.example/a.pem',
    'https://evil.example/sns.eu-central-1.amazonaws.com/a.pem',
    'https://evil@sns.eu-central-1.amazonaws.com/a.pem',
    'https://sns.eu-central-1.amazonaws.com:8443/a.pem',
    'https://sns.eu-central-1.amazonaws.com/a.pem?x=/',
    'https://sns.eu-central-1.amazonaws.com/../a.txt',
    'https://sns.eu-central-1.amazonaws.com/a/b.pem',
    'https://169.254.169.254/a.pem',
    'file:///etc/passwd.pem',
    'a.pem',
    '',
  ])('whose certificate URL is %j is rejected, and nothing is fetched', async (url) => {
    const gate = await start();
    expect((await post(gate, toMessage({ SigningCertURL: url }))).code).toBe('malformed_signature');
    expect(requests).toEqual([]);
    await gate.stop();
  });

  test('that is a day old is rejected without a fetch, and so is a confirmation', async () => {
    const gate = await start();
    const old = { Timestamp: new Date(Date.now() - 86_400_000).toISOString() };
    for (const message of [toMessage(old), toConfirmation(old)])
      expect((await post(gate, message)).code).toBe('timestamp_outside_tolerance');
    expect(requests).toEqual([]);
    await gate.stop();
  });

  test('still passes, and so does a confirmation, after untrusted clients named many missing certificates', async () => {
    const gate = await start();
    expect((await post(gate, toMessage())).status).toBe(200);
    answerWith = 404;
    for (let i = 0; i < 20; i++)
      expect((await post(gate, toMessage({ SigningCertURL: `https://${HOST}/${i}.pem` }))).code).toBe('secret_unavailable');
    answerWith = 200;
    requests = [];
    expect((await post(gate, toMessage())).status).toBe(200);
    expect((await post(gate, toConfirmation())).status).toBe(200);
    expect(requests.map((url) => url.split('&')[0])).toEqual(['/?Action=ConfirmSubscription']);
    await gate.stop();
  });

  test('is rejected with 503 while the certificate is unavailable, and a flood of them causes few fetches', async () => {
    const gate = await start();
    answerWith = 500;
    for (let i = 0; i < 20; i++) expect((await post(gate, toMessage())).code).toBe('secret_unavailable');
    expect(requests).toHaveLength(1);
    answerWith = 200;
    const others = Array.from({ length: 30 }, (_, i) => toMessage({ SigningCertURL: `https://${HOST}/other-${i}.pem` }));
    const codes = await Promise.all(others.map(async (message) => (await post(gate, message)).code ?? 'taken'));
    expect(requests.length).toBeLessThanOrEqual(10);
    expect(codes.filter((code) => code === 'taken').length).toBe(requests.length - 1);
    await gate.stop();
  });
});

describe('a subscription', () => {
  test('to a topic of the route is confirmed by the gate, and the app never sees it', async () => {
    const gate = await start();
    expect(await post(gate, toConfirmation())).toMatchObject({ status: 200, text: '' });
    expect(requests.at(-1)).toContain('Action=ConfirmSubscription');
    expect(app.received).toEqual([]);
    await gate.stop();
    expect(gate.log().find(({ code }) => code === 'handshake')).toMatchObject({ detail: 'the subscription is confirmed' });
  });

  test.each<[string, () => Message, string]>([
    ['to another topic', () => toConfirmation({ TopicArn: `${TOPIC}2` }), 'signature_mismatch'],
    ['that is not signed', () => ({ ...toConfirmation(), Token: 'x' }), 'signature_mismatch'],
    [
      'that leads elsewhere',
      () => toConfirmation({ SubscribeURL: 'https://evil.example/?Action=ConfirmSubscription' }),
      'handshake_refused',
    ],
    [
      'that would do something else',
      () => toConfirmation({ SubscribeURL: `https://${HOST}/?Action=DeleteTopic&TopicArn=${TOPIC}` }),
      'handshake_refused',
    ],
  ])('%s is not confirmed', async (_title, make, code) => {
    const gate = await start();
    expect((await post(gate, make())).code).toBe(code);
    expect(requests.filter((url) => !url.endsWith('.pem'))).toEqual([]);
    await gate.stop();
    const reason = code === 'handshake_refused' ? code : expect.any(String);
    expect(gate.log().find((line) => line['code'] === code)).toMatchObject({ reason });
  });

  test('is retried by the sender if the confirmation failed', async () => {
    const gate = await start();
    await post(gate, toMessage());
    answerWith = 503;
    expect(await post(gate, toConfirmation())).toMatchObject({ status: 503, code: 'secret_unavailable' });
    await gate.stop();
    expect(gate.log().at(-1)).toBeDefined();
    expect(gate.log().find(({ reason }) => reason === 'handshake_unfinished')).toMatchObject({
      detail: `${HOST}: responded with 503`,
    });
  });

  test('is left to the operator if the route says so, and its end is logged', async () => {
    const gate = await start({ confirm: false });
    expect((await post(gate, toConfirmation())).code).toBe('handshake_refused');
    expect((await post(gate, toConfirmation({ Type: 'UnsubscribeConfirmation' }))).status).toBe(200);
    expect(app.received).toEqual([]);
    await gate.stop();
    expect(gate.log().find(({ code }) => code === 'handshake_refused')).toMatchObject({
      reason: 'handshake_refused',
      detail: 'sns.confirm is false: confirm the subscription by hand',
    });
  });
});

test('a route without topics is an error in the config', async () => {
  const webhook = { scheme: 'aws-sns', keys: [] };
  await expect(startGate({ routes: [toRoute(app.port, { webhook })] })).rejects.toThrow(
    /signs messages of every AWS account with the same keys/,
  );
  const wrong = { ...webhook, sns: { topics: ['orders'] } };
  await expect(startGate({ routes: [toRoute(app.port, { webhook: wrong })] })).rejects.toThrow(/is not the ARN of a topic/);
});
