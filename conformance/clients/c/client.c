/* Publishes, gets, consumes, rejects and calls with rabbitmq-c.
 * The broker is the first argument, else AMQP_URL. */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static amqp_connection_state_t conn;
static struct timeval patience = {5, 0};

static void check(const char *name, int condition) {
  if (!condition) {
    amqp_rpc_reply_t r = amqp_get_rpc_reply(conn);
    fprintf(stderr, "FAILED %s (reply type %d, method %x)\n", name, r.reply_type, r.reply.id);
    exit(1);
  }
  printf("ok %s\n", name);
}

static int normal(amqp_rpc_reply_t r) { return r.reply_type == AMQP_RESPONSE_NORMAL; }

static int equal(amqp_bytes_t a, const char *b) { return a.len == strlen(b) && memcmp(a.bytes, b, a.len) == 0; }

static void publish(amqp_channel_t channel, amqp_bytes_t key, int mandatory, const char *body, amqp_basic_properties_t *properties) {
  check("publish", amqp_basic_publish(conn, channel, amqp_empty_bytes, key, mandatory, 0, properties,
                                      amqp_cstring_bytes(body)) == AMQP_STATUS_OK);
}

/* Waits for one method; the library hands over frames in the order they came. */
static void expect(const char *name, amqp_method_number_t method, amqp_frame_t *frame) {
  check(name, amqp_simple_wait_frame_noblock(conn, frame, &patience) == AMQP_STATUS_OK &&
                  frame->frame_type == AMQP_FRAME_METHOD && frame->payload.method.id == method);
}

static void consume(amqp_channel_t channel, amqp_bytes_t queue, const char *tag, int no_ack) {
  amqp_basic_consume(conn, channel, queue, amqp_cstring_bytes(tag), 0, no_ack, 0, amqp_empty_table);
  check("consume", normal(amqp_get_rpc_reply(conn)));
}

static void cancel(const char *tag) {
  amqp_basic_cancel(conn, 1, amqp_cstring_bytes(tag));
  check("cancel", normal(amqp_get_rpc_reply(conn)));
}

static amqp_bytes_t declare(amqp_channel_t channel) {
  amqp_queue_declare_ok_t *ok = amqp_queue_declare(conn, channel, amqp_empty_bytes, 0, 0, 1, 0, amqp_empty_table);
  check("declare", ok != NULL);
  return amqp_bytes_malloc_dup(ok->queue);
}

static void rpc(void) { /* through direct reply-to; the server works on a channel of its own */
  amqp_envelope_t request, reply;
  amqp_basic_properties_t call = {._flags = AMQP_BASIC_REPLY_TO_FLAG | AMQP_BASIC_CORRELATION_ID_FLAG,
                                  .reply_to = amqp_cstring_bytes("amq.rabbitmq.reply-to"),
                                  .correlation_id = amqp_cstring_bytes("42")};
  amqp_channel_open(conn, 2);
  amqp_channel_open(conn, 3);
  amqp_bytes_t requests = declare(2);
  consume(2, requests, "server", 1);
  consume(3, call.reply_to, "client", 1);
  publish(3, requests, 0, "ping", &call);
  check("request", normal(amqp_consume_message(conn, &request, &patience, 0)) && equal(request.message.body, "ping"));
  amqp_basic_properties_t answer = {._flags = AMQP_BASIC_CORRELATION_ID_FLAG,
                                    .correlation_id = request.message.properties.correlation_id};
  publish(2, request.message.properties.reply_to, 0, "pong", &answer);
  check("rpc", normal(amqp_consume_message(conn, &reply, &patience, 0)) && equal(reply.message.body, "pong") &&
                   equal(reply.message.properties.correlation_id, "42"));
  amqp_destroy_envelope(&request);
  amqp_destroy_envelope(&reply);
  amqp_bytes_free(requests);
}

int main(int argc, char **argv) {
  static const char *bodies[] = {"one", "two", "three"};
  char *uri = strdup(argc > 1 ? argv[1] : getenv("AMQP_URL"));
  struct amqp_connection_info to;
  amqp_frame_t frame;
  amqp_message_t message;
  amqp_envelope_t envelope;

  amqp_default_connection_info(&to);
  conn = amqp_new_connection();
  check("connect", amqp_parse_url(uri, &to) == AMQP_STATUS_OK &&
                       amqp_socket_open(amqp_tcp_socket_new(conn), to.host, to.port) == AMQP_STATUS_OK);
  check("login", normal(amqp_login(conn, to.vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, to.user, to.password)));
  amqp_channel_open(conn, 1);
  amqp_bytes_t queue = declare(1);

  amqp_confirm_select(conn, 1);
  for (int i = 0; i < 3; i++) {
    publish(1, queue, 0, bodies[i], NULL);
    expect("confirm", AMQP_BASIC_ACK_METHOD, &frame);
  }

  amqp_rpc_reply_t got = amqp_basic_get(conn, 1, queue, 0);
  check("get", normal(got) && got.reply.id == AMQP_BASIC_GET_OK_METHOD);
  amqp_basic_get_ok_t *ok = got.reply.decoded;
  check("get-count", ok->message_count == 2);
  amqp_basic_ack(conn, 1, ok->delivery_tag, 0);
  check("get-body", normal(amqp_read_message(conn, 1, &message, 0)) && equal(message.body, "one"));
  amqp_destroy_message(&message);

  consume(1, queue, "reader", 0);
  for (int i = 1; i < 3; i++) {
    check("delivery", normal(amqp_consume_message(conn, &envelope, &patience, 0)) &&
                          equal(envelope.message.body, bodies[i]) && !envelope.redelivered);
    amqp_basic_ack(conn, 1, envelope.delivery_tag, 0);
    amqp_destroy_envelope(&envelope);
  }
  cancel("reader");

  publish(1, queue, 0, "again", NULL);
  expect("confirm", AMQP_BASIC_ACK_METHOD, &frame);
  consume(1, queue, "refuser", 0);
  for (int redelivered = 0; redelivered < 2; redelivered++) { /* requeued the first time, dropped the second */
    check("reject", normal(amqp_consume_message(conn, &envelope, &patience, 0)) && envelope.redelivered == redelivered);
    amqp_basic_reject(conn, 1, envelope.delivery_tag, !redelivered);
    amqp_destroy_envelope(&envelope);
  }
  cancel("refuser");
  check("empty", amqp_basic_get(conn, 1, queue, 1).reply.id == AMQP_BASIC_GET_EMPTY_METHOD);

  publish(1, amqp_cstring_bytes("no-such-queue"), 1, "lost", NULL);
  expect("return", AMQP_BASIC_RETURN_METHOD, &frame);
  check("no-route", ((amqp_basic_return_t *)frame.payload.method.decoded)->reply_code == 312);
  check("returned", normal(amqp_read_message(conn, 1, &message, 0)) && equal(message.body, "lost"));
  amqp_destroy_message(&message);
  expect("confirm", AMQP_BASIC_ACK_METHOD, &frame);

  rpc();
  amqp_bytes_free(queue);
  check("close", normal(amqp_connection_close(conn, AMQP_REPLY_SUCCESS)));
  amqp_destroy_connection(conn);
  free(uri);
  return 0;
}
