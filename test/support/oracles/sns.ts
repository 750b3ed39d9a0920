/** AWS SNS: signed in the body by a key whose certificate is fetched; proved by AWS's validator, which fetches it here over TLS on loopback. */
import { execFileSync } from 'node:child_process';
import { createSign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, globalAgent } from 'node:https';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { makeAuthority } from '../certificates.ts';
import { BODY, type Delivery, type Oracle, type SignedDelivery, toJsonDelivery } from './oracle.ts';

const require = createRequire(import.meta.url);
interface Validator {
  validate(message: string, done: (error: unknown) => void): void;
}
const MessageValidator = require('sns-validator') as new (host: RegExp) => Validator;

type Message = Readonly<Record<string, string>>;

/** In the order of their names; of the optional ones those that are there (AWS: verify message signatures). */
const SIGNED = ['Message', 'MessageId', 'Subject', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'];

/** The oracle, and what must be stopped at the end. */
export interface SnsOracle extends Oracle {
  readonly certificateUrl: string;
  /** The authority that the certificate's server is trusted by, PEM. */
  readonly ca: string;
  signMessage(message: Message, version: '1' | '2'): Message;
  stop(): Promise<void>;
}

function signMessage(message: Message, version: '1' | '2', key: string): Message {
  const signer = createSign(version === '1' ? 'RSA-SHA1' : 'RSA-SHA256');
  for (const name of SIGNED) if (message[name] !== undefined) signer.update(`${name}\n${message[name]}\n`);
  return { ...message, SignatureVersion: version, Signature: signer.sign(key, 'base64') };
}

function toNotification(timestamp: number): Message {
  return {
    Type: 'Notification',
    MessageId: '22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324',
    TopicArn: 'arn:aws:sns:us-west-2:123456789012:MyTopic',
    Subject: 'Größe',
    Message: '{"order":1}',
    Timestamp: new Date(timestamp).toISOString(),
  };
}

/** AWS signs with RSA, and so does nothing that makes certificates elsewhere in the tests. */
function makeSigner(folder: string): { readonly cert: Buffer; readonly key: string } {
  const [cert, key] = [join(folder, 'signer.crt'), join(folder, 'signer.key')];
  const kind = ['-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=sns.amazonaws.com'];
  execFileSync('openssl', ['req', '-x509', ...kind, '-keyout', key, '-out', cert], { stdio: 'ignore' });
  return { cert: readFileSync(cert), key: readFileSync(key, 'utf8') };
}

/** Makes a signer in `folder` and serves its certificate. */
export async function startSns(folder: string): Promise<SnsOracle> {
  const authority = makeAuthority(folder, 'sns-ca');
  const ca = readFileSync(authority.ca, 'utf8');
  const { cert, key } = authority.issue('sns', 'DNS:localhost,IP:127.0.0.1');
  const signer = makeSigner(folder);
  const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (_request, response) =>
    response.end(signer.cert),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const certificateUrl = `https://localhost:${(server.address() as AddressInfo).port}/SimpleNotificationService-1.pem`;
  // The validator asks by node:https's own agent and takes no other.
  const trustedBefore = globalAgent.options.ca;
  globalAgent.options.ca = ca;
  const sign = (message: Message, version: '1' | '2'): Message =>
    signMessage({ ...message, SigningCertURL: certificateUrl }, version, signer.key);
  return {
    preset: 'aws-sns',
    signedBy: 'node:crypto',
    verifiedBy: 'npm sns-validator',
    source: "sns-validator, AWS's own MessageValidator",
    secret: { text: certificateUrl },
    otherSecret: { text: certificateUrl },
    covers: BODY,
    certificateUrl,
    ca,
    signMessage: sign,
    sample: (timestamp) => ({
      ...toJsonDelivery('https://hooks.example.com/sns', timestamp, toNotification(timestamp)),
      contentType: 'text/plain; charset=UTF-8',
    }),
    sign: (delivery) => toSigned(delivery, sign(JSON.parse(delivery.body.toString()) as Message, '2')),
    verify: ({ body }) =>
      new Promise((resolve) => {
        new MessageValidator(/^localhost:\d+$/).validate(body.toString(), (error) => resolve(error === null));
      }),
    stop() {
      globalAgent.options.ca = trustedBefore;
      return new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      });
    },
  };
}

function toSigned({ method, url, contentType }: Delivery, message: Message): SignedDelivery {
  const headers = {
    'content-type': contentType,
    'x-amz-sns-message-type': message['Type'] ?? '',
    'x-amz-sns-message-id': message['MessageId'] ?? '',
    'x-amz-sns-topic-arn': message['TopicArn'] ?? '',
  };
  return { method, url, headers, body: Buffer.from(JSON.stringify(message)) };
}
