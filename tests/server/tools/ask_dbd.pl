# Perl: DBI with DBD::Pg, which prepares statements by the protocol.
use strict;
use warnings;
use DBI;
use JSON::PP;

my %given = map { my ($name, $value) = split /=/, $_, 2; $name => $value } @ARGV;
my $json = JSON::PP->new->canonical->allow_nonref;
$| = 1;
my $database;

sub say_step { my ($step, %told) = @_; print $json->encode({ step => $step, %told }), "\n"; }

sub step {
    my ($name, $run) = @_;
    my $value = eval { $run->() };
    if (my $error = $@) {
        say_step($name, state => $DBI::state, message => "$error");
        return;
    }
    say_step($name, value => $value);
}

sub rows { my ($sql, @bound) = @_; return $database->selectall_arrayref($sql, {}, @bound); }

say_step("version", value => "$DBD::Pg::VERSION") if eval { require DBD::Pg; 1 };
step("connect", sub {
    $database = DBI->connect("dbi:Pg:dbname=$given{database};host=$given{host};port=$given{port}",
        $given{user}, $given{password}, { RaiseError => 1, PrintError => 0, AutoCommit => 1 });
    return $database->{pg_server_version};
});
step("introspect", sub {
    my $tables = $database->table_info(undef, undef, '%', 'TABLE')->fetchall_arrayref({});
    my $columns = $database->column_info(undef, undef, 'reads', '%')->fetchall_arrayref({});
    return { tables => [map { $_->{TABLE_NAME} } @$tables], columns => [map { $_->{COLUMN_NAME} } @$columns] };
});
step("ask", sub { rows($given{question}) });
step("again", sub { rows($given{question}) });
step("public", sub { rows($given{public}) });
step("prepared", sub {
    my $statement = $database->prepare($given{marked}, { pg_prepare_now => 1 });
    return [map { $statement->execute('DE'); $statement->fetchall_arrayref } 1 .. 3];
});
step("refused", sub { rows($given{refused}) });
step("cancel", sub {
    my $statement = $database->prepare($given{slow}, { pg_async => DBD::Pg::PG_ASYNC() });
    $statement->execute;
    select(undef, undef, undef, 0.3);
    return $database->pg_cancel;  # it discards what the server says
});
step("after", sub { rows($given{question}) });
step("transaction", sub { $database->begin_work; my $found = rows($given{question}); $database->commit; return $found; });
step("ping", sub { $database->ping });
step("keys", sub { my $keys = $database->primary_key_info(undef, 'main', 'reads'); return $keys ? $keys->fetchall_arrayref : []; });
$database->disconnect;
